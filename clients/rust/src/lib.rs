//! A thin client of the Penstock message gateway, on Apache Thrift's stock Rust library.
//!
//! A [`Producer`] sends and retries by result code, a [`BatchingProducer`] collects single messages into calls, a
//! [`Consumer`] pulls, acknowledges with its next pull, and runs handlers. All spread over several proxies and are safe
//! for many threads. `Message`, `Delivery`, `Verdict`, `Durability` and `Code` are the generated types of the contract.

mod backoff;
mod batching;
mod codes;
mod config;
mod connection;
mod errors;
mod held;
mod message_fields;
mod plan;
mod pool;
mod pulling;
mod running;
mod sending;

pub use crate::batching::{Batching, BatchingProducer, Pending};
pub use crate::codes::{action_of, name_of, Action};
pub use crate::config::{Config, Metrics, Tell};
pub use crate::consumer::{Delivery, Verdict};
pub use crate::errors::Error;
pub use crate::message::{Code, Message, Operation};
pub use crate::message_fields::message;
pub use crate::plan::SendOutcome;
pub use crate::producer::Durability;
pub use crate::pulling::{Consumer, Subscription};
pub use crate::running::RunOptions;
pub use crate::sending::{How, Producer};

/// Generated code; its modules refer to each other from the root of the crate.
macro_rules! contract {
    ($($name:ident)+) => {$(
        #[allow(clippy::all, dead_code, unused_imports, unused_extern_crates, rustdoc::all)]
        #[rustfmt::skip]
        #[doc(hidden)]
        pub mod $name {
            include!(concat!(env!("OUT_DIR"), "/", stringify!($name), ".rs"));
        }
    )+};
}
contract!(message producer consumer);
