package penstock

import (
	"errors"
	"fmt"
)

// Error is a refusal or an outcome that is not success. Use errors.As to get at the code.
type Error struct {
	Code   Code
	Reason string
	ID     string // of the message; empty for a pull
	sent   bool   // of Unimplemented: a proxy may have done the call
}

func (e *Error) Error() string {
	text := fmt.Sprintf("penstock: %v: %s", e.Code, e.Reason)
	if e.ID != "" {
		text += " (message id " + e.ID + ")"
	}
	return text
}

// MaybeStored reports that the message may have been stored all the same: send it again only with the same id.
func (e *Error) MaybeStored() bool { return e.Code.Action() == Unknown }

// ErrClosed is returned by calls on a closed Producer or Consumer, and for what a closed BatchingProducer did not send.
var ErrClosed = errors.New("penstock: closed")

// ErrFull is returned by BatchingProducer.Send when no room came in time. The message was not taken.
var ErrFull = errors.New("penstock: the batching producer is full")

// callFailed: one call at one endpoint brought no answer of the contract. Unless sent, no proxy has done it.
type callFailed struct {
	cause error
	at    string
	sent  bool
}

func (e *callFailed) Error() string { return e.at + ": " + e.cause.Error() }
func (e *callFailed) Unwrap() error { return e.cause }
