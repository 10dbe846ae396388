use openssl::rand::rand_bytes;

use crate::errors::Error;
use crate::message::Message;

/// A message with a body; its other fields are public.
pub fn message(topic: &str, body: impl Into<Vec<u8>>) -> Message {
    Message::new(topic.into(), body.into(), None, None, None, None, None, None, None, None)
}

/// 32 hex digits.
pub(crate) fn new_id() -> String {
    let mut bytes = [0; 16];
    rand_bytes(&mut bytes).expect("the system has randomness for message ids");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks a message that is to be sent, and gives it an id if it has none.
pub(crate) fn prepared(mut message: Message) -> Result<Message, Error> {
    if message.topic.is_empty() {
        return Err(Error::Invalid("message topic: missing".into()));
    }
    message.id = Some(message.id.filter(|id| !id.is_empty()).unwrap_or_else(new_id));
    Ok(message)
}

/// About how many bytes the message takes in a request.
pub(crate) fn size_of(message: &Message) -> usize {
    let text = |field: &Option<String>| field.as_ref().map_or(0, String::len);
    let properties = message.properties.iter().flatten().map(|(name, value)| 8 + name.len() + value.len());
    200 + message.topic.len()
        + message.body.as_ref().map_or(0, Vec::len)
        + text(&message.key)
        + properties.sum::<usize>()
}
