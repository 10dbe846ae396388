package penstock

import (
	"time"

	contract "penstock.io/client/gen/penstock"
)

// plan is the retry plan of a batch: the messages to send next, and when. No I/O.
//
// Invariant: a message whose outcome was once unknown is reported as unknown (Timeout) unless a later answer tells
// that it is stored. A later refusal applies only to that later attempt.
//
// A message waits while an earlier one of its key does: so a key keeps its order over retries. It holds because a proxy
// that refuses a message stores none of its key's later messages of the same call.
type plan struct {
	entries   []entry
	open      int
	config    Config
	isRequest bool    // a reply is waited for
	chance    float64 // of the jitter; drawn once, so that messages refused together are sent again together
}

type entry struct {
	key         topicKey
	due         time.Time
	attempts    int
	settled     bool
	maybeStored bool
	code        Code
	reason      string
	answer      *contract.SendResult_
}

// topicKey is what messages have in common that keep their order. One without a key has none: the zero value.
type topicKey struct{ topic, key string }

func newPlan(messages []*Message, now time.Time, config Config, chance float64) *plan {
	p := &plan{entries: make([]entry, len(messages)), open: len(messages), config: config, chance: chance}
	for i, m := range messages {
		var key topicKey
		if m.Key != "" {
			key = topicKey{m.Topic, m.Key}
		}
		p.entries[i] = entry{key: key, due: now, code: Unavailable, reason: "no proxy could be reached before the deadline"}
	}
	return p
}

func (p *plan) due(now time.Time) []int {
	var indexes []int
	held := map[topicKey]bool{}
	for i := range p.entries {
		if e := &p.entries[i]; e.settled {
			continue
		} else if !e.due.After(now) && !held[e.key] {
			indexes = append(indexes, i)
		} else if e.key.key != "" {
			held[e.key] = true
		}
	}
	return indexes
}

func (p *plan) nextDue() time.Time {
	var next time.Time
	seen := map[topicKey]bool{}
	for i := range p.entries {
		e := &p.entries[i]
		if e.settled || seen[e.key] {
			continue
		}
		if next.IsZero() || e.due.Before(next) {
			next = e.due
		}
		if e.key.key != "" {
			seen[e.key] = true
		}
	}
	return next
}

func (p *plan) answered(index int, answer *contract.SendResult_, now time.Time) {
	e := &p.entries[index]
	e.attempts++
	e.code, e.reason, e.answer = Code(answer.Code), answer.GetError(), answer
	action := e.code.Action()
	if e.maybeStored && (action == Refused || action == Later || action == Elsewhere) {
		// What it says, also "not stored", is about this attempt alone.
		e.reason = "an earlier attempt may have stored it"
		if told := answer.GetError(); told != "" {
			e.reason += "; the last one was answered: " + told
		}
		if action == Refused {
			e.code = Timeout
		}
	}
	if p.isRequest && e.code == Duplicate && answer.Reply == nil {
		e.code, e.reason = Timeout, "stored by an earlier attempt, whose reply cannot be had"
	}
	switch action {
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
func (p *plan) failed(index int, reason string, sent bool, now time.Time) {
	e := &p.entries[index]
	if sent {
		e.attempts++
		e.maybeStored = true
	}
	e.reason = reason
	e.due = now
}

// hasOutcomes: a message was answered for good, or may be stored.
func (p *plan) hasOutcomes() bool {
	for i := range p.entries {
		if p.entries[i].settled || p.entries[i].maybeStored {
			return true
		}
	}
	return false
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
