/** Client of Penstock. All times are milliseconds; `*At…` and `*By…` are Unix times. */

/** Result codes of thrift/message.thrift; a proxy may answer newer ones, which go by their hundreds digit. */
export const Code: Readonly<Record<string, number>>;
export const Action: Readonly<{ DONE: 0; REFUSED: 1; LATER: 2; UNKNOWN: 3; ELSEWHERE: 4; NO_REPLY: 5 }>;
export function actionOf(code: number): number;
export function nameOf(code: number): string;

export const Verdict: Readonly<{ DONE: 0; RETRY: 1; REJECT: 2; EXTEND: 3; RELEASE: 4 }>;
export const Durability: Readonly<{
  TOPIC_DEFAULT: 0;
  MEMORY: 1; // in the master's page cache
  FSYNC: 2; // on the master's disk
  REPLICATED: 3; // in every in-sync replica's page cache
  REPLICATED_FSYNC: 4; // on every in-sync replica's disk
}>;

export interface Options {
  /**
   * For one send with all its retries; a pull or a request adds it to its wait. A call may take 500 ms more for an
   * answer. Default 10,000.
   */
  deadlineMs?: number;
  /** For one attempt at one proxy; shorter finds a hung proxy sooner, and retries more. Default 3,000. */
  callTimeoutMs?: number;
  /** For a new connection with its TLS handshake; less when the deadline comes before. Default 1,000. */
  connectTimeoutMs?: number;
  /** false: buffered transport. Penstock takes both on one port. Default true. */
  framed?: boolean;
  /** Options of `tls.connect`, for example `{ ca: fs.readFileSync('ca.pem') }`; null (default): plain TCP. */
  tls?: import('node:tls').ConnectionOptions | null;
  /** First back-off, doubled with each failure, with jitter. Default 50. */
  backoffFirstMs?: number;
  /** Default 2,000. */
  backoffMaxMs?: number;
  /** One minted credential is used this long; proxies take it for 300 s. Default 60,000. */
  credentialMs?: number;
  /** Kept open per proxy; more are made when needed and closed after use. Default 8. */
  idleConnectionsMax?: number;
  /** An older idle connection may have been closed by the proxy. Default 30,000. */
  idleMsMax?: number;
  /** `run` ends when no pull has succeeded for so long; 0: never. Default 600,000. */
  outageMsMax?: number;
  /** `run` extends no lease beyond this; a handler that hangs loses its message then. Default 3,600,000. */
  extendMsMax?: number;
  /** Consumer: the lease time of its deliveries, from 1,000; null (default): the group's setting. */
  invisibleMs?: number | null;
  /** Called with outages and topics that give nothing, one sentence each. Default: console.warn. */
  tell?: (sentence: string) => void;
  metrics?: Metrics;
}

/** Called as things happen, in the event loop's turn: return soon and do not throw. All are optional. */
export interface Metrics {
  /** One attempt at one proxy has ended. `failure` is null for an answer, whatever its code. */
  call?(method: 'send' | 'pull', endpoint: string, tookMs: number, failure: Error | null): void;
  /** The final outcome of one message, after all retries. */
  sent?(result: Result): void;
  /** A handler of `run` has ended. */
  handled?(delivery: Delivery, verdict: number, tookMs: number): void;
}

export interface Message {
  topic: string;
  /** Up to 4 MiB unless the topic says otherwise; a string travels as UTF-8. */
  body?: Uint8Array | string;
  /** Same key, same queue: order is kept per key. The empty string is a key; undefined: any queue. */
  key?: string;
  tag?: string;
  properties?: Record<string, string>;
  /** Set here by `send` when missing (32 hex digits): a second send with the same id is a DUPLICATE. */
  id?: string;
  deliverAtMs?: number;
  /** Like deliverAtMs, counted from the broker's receipt; set at most one of the two. */
  delayMs?: number;
  /** Cancel the delayed message with this topic and id. */
  cancel?: boolean;
  /** In a reply: the replyToken of the request's delivery. */
  replyTo?: Uint8Array;
}

export interface ReceivedMessage extends Message {
  body: Buffer;
}

/** The outcome of one message after all retries. */
export interface Result {
  code: number;
  /** Stored. A request whose reply did not come is stored too, but not ok. */
  ok: boolean;
  id: string;
  queue?: number;
  /** In the queue; undefined while the message is in the fallback buffer (BUFFERED). */
  offset?: number;
  error?: string;
  reply?: ReceivedMessage;
  attempts: number;
}

export interface Delivery {
  message: ReceivedMessage;
  id: string;
  queue: number;
  offset: number;
  /** 1 for the first delivery. */
  attempt: number;
  storedAtMs: number;
  /** Set: the sender waits for a reply until replyByMs. */
  replyToken?: Buffer;
  replyByMs?: number;
  source?: string;
  receipt: Buffer;
}

export interface SendHow {
  durability?: number;
  /** For everything, retries included; undefined: the option. */
  deadlineMs?: number;
  /** Wait for a consumer's reply; one message only. */
  replyWaitMs?: number;
}

/** `'host:port,host:port'` or a list of such; IPv6 as `[::1]:9700`. */
export type Endpoints = string | Iterable<string>;

/** Sends through any of several producer proxies. Any number of calls may be in flight. Connects at the first call. */
export class Producer {
  /** Throws a TypeError for an endpoint or option that is invalid. */
  constructor(endpoints: Endpoints, app: string, keyId: string, secret: string | Uint8Array, options?: Options);
  /** Resent messages, over all calls. */
  readonly retried: number;
  /** Resolves once the message is stored. Rejects with SendError, ContractError, ClosedError or TypeError. */
  send(message: Message, how?: SendHow): Promise<Result>;
  /**
   * One result each, in order; a message's failure is in its result. Messages of one key keep their order, over retries
   * too: a message waits while an earlier one of its key does. Rejects with ContractError, ClosedError or TypeError.
   */
  sendAll(messages: Iterable<Message>, how?: SendHow): Promise<Result[]>;
  /**
   * What a consumer replies; the message is not dispatched after waitMs. SendError also when no reply comes: NO_CONSUMER,
   * NO_REPLY, CONSUMER_FAILED; or TIMEOUT, as an earlier attempt was stored, whose reply cannot be had.
   */
  request(message: Message, waitMs: number, how?: SendHow): Promise<ReceivedMessage>;
  /** Resolves once the waiting caller has the reply; SendError STALE_RECEIPT when it no longer waits. */
  reply(delivery: Delivery, body: Uint8Array | string, properties?: Record<string, string>): Promise<Result>;
  /** Waits for the calls in flight, which end by their deadlines; later calls are refused. */
  close(): Promise<void>;
}

/** When a BatchingProducer sends. */
export interface Batching {
  /** A message waits for others at most this long. Default 5. */
  lingerMs?: number;
  /** A call is made at once when so many bytes wait. Default 256 KiB. */
  bytes?: number;
  /** Or so many messages. Default 1,000. */
  messages?: number;
  /** That wait or are on their way; beyond it `send` refuses. Default 32 MiB. */
  bytesMax?: number;
}

/**
 * Collects single messages into calls, made one after another. A call takes all that waits, as far as it fits. Messages
 * of one key keep their order, over retries too. A message must not be changed before its outcome is known.
 */
export class BatchingProducer {
  /** Does not close the producer. Throws a TypeError for a setting that is invalid. */
  constructor(producer: Producer, how?: Batching);
  /**
   * Resolves once the message is stored. Rejects as Producer.send does, and at once with FullError when bytesMax wait:
   * the message was not taken, await room(). ClosedError: it is not stored.
   */
  send(message: Message): Promise<Result>;
  /** Resolves when `send` takes a message again. */
  room(): Promise<void>;
  /** Sends what waits now; resolves when all that was taken before is answered. */
  flush(): Promise<void>;
  /**
   * Sends what waits, until the deadline at most (default 10,000 ms). What is in no call by then ends with ClosedError;
   * a call in progress goes on by its own deadline. Later messages are refused.
   */
  close(deadlineMs?: number): Promise<void>;
}

export interface RunHow {
  /** Ends the loop after the handlers in progress. */
  signal?: AbortSignal;
  /** Of one pull; fewer are asked for when the handlers are slow. Default 32. */
  maxMessages?: number;
  /** Long poll of one pull; a stop may wait for it. Default 5,000. */
  waitMs?: number;
  /** Handlers at a time; of one key never more than one. Default 1. */
  workers?: number;
}

/** What a handler returns: a Verdict (DONE, RETRY or REJECT) or nothing, which is DONE. */
export type Handler = (delivery: Delivery) => number | void | Promise<number | void>;

/** One member of a group. Any number of members share the group's messages, without assignment. */
export class Consumer {
  /** topics undefined or null: all topics of the group's definition. Throws a TypeError for what is invalid. */
  constructor(
    endpoints: Endpoints,
    app: string,
    keyId: string,
    secret: string | Uint8Array,
    group: string,
    topics?: string[] | null,
    options?: Options,
  );
  /** Acknowledgements that were late or invalid: their messages are redelivered. */
  readonly acksRefused: number;
  /** Topics that the last pull named and that give nothing, with the reason of each. */
  readonly unservedTopics: ReadonlyMap<string, string>;
  /** Empty when none came within waitMs. Rejects with PullError, ContractError or ClosedError. */
  pull(how?: { maxMessages?: number; waitMs?: number; maxBytes?: number }): Promise<Delivery[]>;
  /** Like all verdicts it travels with the next pull, flush or close. */
  done(delivery: Delivery): void;
  /** Redeliver after delayMs or the group's back-off. */
  retry(delivery: Delivery, how?: { delayMs?: number; reason?: string }): void;
  /** To the dead-letter topic now; the reason is stored with it. */
  reject(delivery: Delivery, reason?: string): void;
  /** The lease ends delayMs from when the proxy takes this. */
  extend(delivery: Delivery, delayMs: number): void;
  /** Deliver the waiting acknowledgements now, without taking messages. */
  flush(): Promise<void>;
  /**
   * Pull and handle until the signal is aborted, then give back what no handler has seen and deliver the last
   * acknowledgements. A handler that throws makes it RETRY, with the error as reason. Leases are extended by a timer:
   * a handler that blocks the event loop for half of a lease loses its messages.
   *
   * Rejects with PullError when refused for good, when no pull succeeded for outageMsMax, or when the last
   * acknowledgements could not be delivered; or with ContractError.
   */
  run(handle: Handler, how?: RunHow): Promise<void>;
  /** Delivers the waiting acknowledgements and closes the connections; a pull in flight ends first. */
  close(): Promise<void>;
}

export class PenstockError extends Error {}
/** Refused, or the deadline passed. With maybeStored send again only with the same id. */
export class SendError extends PenstockError {
  readonly result: Result;
  readonly code: number;
  readonly maybeStored: boolean;
}
/** Refused, or no proxy answered in time. Acknowledgements are kept for the next pull. */
export class PullError extends PenstockError {
  readonly code: number;
}
/** No endpoint implements this contract, and nothing is stored; retrying cannot help. */
export class ContractError extends PenstockError {}
/** A batching producer holds as much as it may; the message was not taken. */
export class FullError extends PenstockError {}
/** Used after close(), or closed before the message was sent: it is not stored. */
export class ClosedError extends PenstockError {}
