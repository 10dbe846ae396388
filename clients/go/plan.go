package penstock

import (
	"time"

	contract "penstock.io/client/gen/penstock"
)

// plan is the retry plan of a batch: the messages to send next, and when. No I/O.
//
// Invariant: a message whose outcome was once unknown is reported as unknown (Timeout) unless a later answer settles
// it. A later "not stored" applies only to that later attempt.
type plan struct {
	entries []entry
	open    int
	config  Config
	chance  float64 // of the jitter; drawn once, so that messages refused together are sent again together
}

type entry struct {
	due         time.Time
	attempts    int
	settled     bool
	maybeStored bool
	code        Code
	reason      string
	answer      *contract.SendResult_
}

func newPlan(count int, now time.Time, config Config, chance float64) *plan {
	p := &plan{entries: make([]entry, count), open: count, config: config, chance: chance}
	for i := range p.entries {
		p.entries[i] = entry{due: now, code: Unavailable, reason: "no proxy could be reached before the deadline"}
	}
	return p
}

func (p *plan) due(now time.Time) []int {
	var indexes []int
	for i := range p.entries {
		if e := &p.entries[i]; !e.settled && !e.due.After(now) {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

func (p *plan) nextDue() time.Time {
	var next time.Time
	for i := range p.entries {
		if e := &p.entries[i]; !e.settled && (next.IsZero() || e.due.Before(next)) {
			next = e.due
		}
	}
	return next
}

func (p *plan) answered(index int, answer *contract.SendResult_, now time.Time) {
	e := &p.entries[index]
	e.attempts++
	e.code, e.reason, e.answer = Code(answer.Code), answer.GetError(), answer
	switch action := e.code.Action(); action {
	case Later, Unknown:
		e.due = now.Add(pause(e.code, answer.GetRetryAfterMs(), p.config.backoffAt(e.attempts, p.chance)))
		e.maybeStored = e.maybeStored || action == Unknown
	case Elsewhere:
		e.due = now
	default:
		e.settled = true
		p.open--
	}
}

// failed: no answer came. The message is due again at once, as the pool has set that proxy aside.
func (p *plan) failed(index int, failure *callFailed, now time.Time) {
	e := &p.entries[index]
	if failure.sent {
		e.attempts++
		e.maybeStored = true
	}
	e.reason = failure.Error()
	e.due = now
}

func (e *entry) result(id string) Result {
	if !e.settled {
		code := e.code
		if e.maybeStored {
			code = Timeout
		}
		return Result{Code: code, ID: id, Queue: -1, Offset: -1, Reason: e.reason, Attempts: e.attempts}
	}
	made := Result{Code: e.code, ID: id, Queue: -1, Offset: -1, Reason: e.reason, Attempts: e.attempts}
	if e.answer.ID != nil {
		made.ID = *e.answer.ID
	}
	if e.answer.Queue != nil {
		made.Queue = int(*e.answer.Queue)
	}
	if e.answer.Offset != nil {
		made.Offset = *e.answer.Offset
	}
	made.Reply = fromContract(e.answer.Reply)
	return made
}
