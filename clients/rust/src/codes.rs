//! The action for a result code, by its hundreds digit, so that codes newer than this client work too.

use crate::message::Code;

/// What a caller should do about a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Stored.
    Done,
    /// The request is wrong: do not retry it unchanged.
    Refused,
    /// Not stored: retry after a pause.
    Later,
    /// May be stored: retry with the same id.
    Unknown,
    /// Not stored: retry at once, at another proxy.
    Elsewhere,
    /// Stored, but the reply did not come.
    NoReply,
}

/// An undefined hundreds digit is `Unknown`, the safe choice.
pub fn action_of(code: Code) -> Action {
    match code.0.div_euclid(100) {
        0 => Action::Done,
        1 => Action::Refused,
        2 => Action::Later,
        4 => Action::Elsewhere,
        5 => Action::NoReply,
        _ => Action::Unknown,
    }
}

macro_rules! names {
    ($code:expr, $($name:ident)+) => {
        match $code {
            $(Code::$name => stringify!($name).to_string(),)+
            other => format!("code {}", other.0),
        }
    };
}

/// The code's name in the contract; "code N" for one that is newer than this client.
pub fn name_of(code: Code) -> String {
    names!(code, OK BUFFERED DUPLICATE INVALID TOO_LARGE UNKNOWN_TOPIC UNKNOWN_GROUP UNAUTHENTICATED FORBIDDEN
        STALE_RECEIPT OFFSET_OUT_OF_RANGE NOT_CANCELLABLE QUOTA_EXCEEDED RATE_LIMITED OVERLOADED BACKLOGGED UNAVAILABLE
        FENCED DISK_FULL TIMEOUT SHUTTING_DOWN NO_CONSUMER NO_REPLY CONSUMER_FAILED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hundreds_digit_gives_the_action_also_of_newer_codes() {
        let codes = [0, 2, 100, 199, 204, 299, 300, 400, 501, 599, 600, -1];
        let actions: Vec<Action> = codes.iter().map(|&code| action_of(Code(code))).collect();
        use Action::*;
        let expected =
            [Done, Done, Refused, Refused, Later, Later, Unknown, Elsewhere, NoReply, NoReply, Unknown, Unknown];
        assert_eq!(actions, expected);
    }

    #[test]
    fn every_code_of_the_contract_has_its_name() {
        for &code in Code::ENUM_VALUES {
            assert!(!name_of(code).starts_with("code "), "{code:?}");
        }
        assert_eq!((name_of(Code::FENCED), name_of(Code(299))), ("FENCED".into(), "code 299".into()));
    }
}
