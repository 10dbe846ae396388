use openssl::rand::rand_bytes;

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

/// About how many bytes the message takes in a request.
pub(crate) fn size_of(message: &Message) -> usize {
    let text = |field: &Option<String>| field.as_ref().map_or(0, String::len);
    let properties = message.properties.iter().flatten().map(|(name, value)| 8 + name.len() + value.len());
    200 + message.topic.len()
        + message.body.as_ref().map_or(0, Vec::len)
        + text(&message.key)
        + properties.sum::<usize>()
}
