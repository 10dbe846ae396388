use std::fmt;

use crate::codes::{action_of, name_of, Action};
use crate::message::Code;

/// Why a call did not end as wished.
#[derive(Clone, Debug)]
pub enum Error {
    /// Refused, or the deadline passed. `id` is the message's; empty for a pull.
    Refused { code: Code, reason: String, id: String },
    /// No endpoint implements this contract, and nothing is stored. Retrying cannot help.
    Contract(String),
    /// Used after `close`; or a batching producer was closed before it sent the message, which is not stored then.
    Closed,
    /// A batching producer holds as much as it may. The message was not taken.
    Full,
    /// The configuration or a message is invalid.
    Invalid(String),
}

impl Error {
    pub(crate) fn pull(code: Code, reason: Option<String>) -> Error {
        let reason = reason.unwrap_or_else(|| "no reason given".into());
        Error::Refused { code, reason, id: String::new() }
    }

    /// The result code; none for an error that no proxy has answered.
    pub fn code(&self) -> Option<Code> {
        match self {
            Error::Refused { code, .. } => Some(*code),
            _ => None,
        }
    }

    /// The message may have been stored all the same: send it again only with the same id.
    pub fn is_maybe_stored(&self) -> bool {
        self.code().is_some_and(|code| action_of(code) == Action::Unknown)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused { code, reason, id } if id.is_empty() => write!(to, "{}: {reason}", name_of(*code)),
            Error::Refused { code, reason, id } => write!(to, "{}: {reason} (message id {id})", name_of(*code)),
            Error::Contract(reason) | Error::Invalid(reason) => to.write_str(reason),
            Error::Closed => to.write_str("the client is closed"),
            Error::Full => to.write_str("the batching producer is full"),
        }
    }
}

impl std::error::Error for Error {}

/// One call at one endpoint brought no answer of the contract. Unless `sent`, no proxy has done it.
pub(crate) struct CallFailed {
    pub reason: String,
    pub sent: bool,
}

pub(crate) enum AttemptError {
    Failed(CallFailed),
    /// The same, and all endpoints have answered last what is none of the contract.
    AllForeign(CallFailed),
    Final(Error),
}
