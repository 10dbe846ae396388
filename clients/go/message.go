package penstock

import (
	"crypto/rand"
	"encoding/hex"
	"time"

	contract "penstock.io/client/gen/penstock"
)

// Message is a message to send, or of a Delivery. Empty fields are unset.
type Message struct {
	Topic      string
	Body       []byte
	Key        string // same key, same queue; order is kept per key
	Tag        string
	Properties map[string]string
	ID         string        // assigned (and set here) by Send when empty, so that a retry makes no duplicate
	DeliverAt  time.Time     // not before; zero: now
	Delay      time.Duration // like DeliverAt, counted from the proxy's receipt; set at most one
	Cancel     bool          // cancel the delayed message with this topic and ID
	ReplyTo    []byte        // in a reply: the request's Delivery.ReplyToken
}

func newID() string {
	var raw [16]byte
	if _, err := rand.Read(raw[:]); err != nil {
		panic("penstock: no randomness for message ids: " + err.Error())
	}
	return hex.EncodeToString(raw[:])
}

func (m *Message) toContract() *contract.Message {
	made := &contract.Message{
		Topic: m.Topic, Body: m.Body, Key: optional(m.Key), Tag: optional(m.Tag), Properties: m.Properties,
		ID: optional(m.ID), ReplyTo: m.ReplyTo,
	}
	if !m.DeliverAt.IsZero() {
		at := m.DeliverAt.UnixMilli()
		made.DeliverAtMs = &at
	}
	if m.Delay > 0 {
		delay := m.Delay.Milliseconds()
		made.DelayMs = &delay
	}
	if m.Cancel {
		cancel := contract.Operation_CANCEL
		made.Operation = &cancel
	}
	return made
}

func fromContract(m *contract.Message) *Message {
	if m == nil {
		return nil
	}
	made := &Message{
		Topic: m.Topic, Body: m.Body, Key: m.GetKey(), Tag: m.GetTag(), Properties: m.Properties, ID: m.GetID(),
		Delay: time.Duration(m.GetDelayMs()) * time.Millisecond, ReplyTo: m.ReplyTo,
	}
	if m.DeliverAtMs != nil {
		made.DeliverAt = time.UnixMilli(*m.DeliverAtMs)
	}
	return made
}

// size estimates the message's size in a request.
func (m *Message) size() int {
	size := 200 + len(m.Topic) + len(m.Body) + len(m.Key)
	for name, value := range m.Properties {
		size += 8 + len(name) + len(value)
	}
	return size
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func millis(d time.Duration) *int32 {
	ms := int32(d.Milliseconds())
	return &ms
}
