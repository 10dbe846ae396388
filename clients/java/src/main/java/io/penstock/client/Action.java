package io.penstock.client;

import io.penstock.thrift.Code;

/** What a caller should do about a result code, by its hundreds digit, so codes newer than this client work too. */
public enum Action {
  /** Stored. */
  DONE,
  /** The request is wrong: do not retry it unchanged. */
  REFUSED,
  /** Not stored: retry after a pause. */
  LATER,
  /** May be stored: retry with the same id. */
  UNKNOWN,
  /** Not stored: retry at once, at another proxy. */
  ELSEWHERE,
  /** Stored, but the reply did not come. */
  NO_REPLY;

  /** The action for a code; an undefined hundreds digit is UNKNOWN, the safe choice. */
  public static Action of(int code) {
    int digit = Math.floorDiv(code, 100);
    return digit >= 0 && digit < values().length ? values()[digit] : UNKNOWN;
  }

  /** The code's name in the contract; "code N" for one that is newer than this client. */
  public static String nameOf(int code) {
    Code known = Code.findByValue(code);
    return known == null ? "code " + code : known.name();
  }
}
