package penstock

import (
	"fmt"

	contract "penstock.io/client/gen/penstock"
)

// Code is a result code of the contract. Its hundreds digit gives the action, so codes newer than this client work too.
type Code int

// Codes that this client itself reports or that callers often ask for; thrift/message.thrift has them all.
const (
	OK            = Code(contract.Code_OK)
	Buffered      = Code(contract.Code_BUFFERED)
	Duplicate     = Code(contract.Code_DUPLICATE)
	StaleReceipt  = Code(contract.Code_STALE_RECEIPT)
	RateLimited   = Code(contract.Code_RATE_LIMITED)
	Unavailable   = Code(contract.Code_UNAVAILABLE)
	Timeout       = Code(contract.Code_TIMEOUT)
	Unimplemented = Code(-1) // never on the wire: no endpoint implements this contract
)

// Action is what a caller should do about a code.
type Action int

const (
	Done      Action = iota // stored
	Refused                 // the request is wrong: do not retry it unchanged
	Later                   // not stored: retry after a pause
	Unknown                 // may be stored: retry with the same id
	Elsewhere               // not stored: retry at once, at another proxy
	NoReply                 // stored, but the reply did not come
)

// Action reads the hundreds digit; an undefined one is Unknown, the safe choice.
func (c Code) Action() Action {
	if c < 0 {
		return Refused
	}
	if a := Action(c / 100); a <= NoReply {
		return a
	}
	return Unknown
}

func (c Code) String() string {
	if name := contract.Code(c).String(); name != "<UNSET>" {
		return name
	}
	return fmt.Sprintf("code %d", int(c))
}
