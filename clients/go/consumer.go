package penstock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	contract "penstock.io/client/gen/penstock"
)

const (
	ackBytes   = 120 // estimated size of one acknowledgement in a request
	pullMargin = 2 * time.Second
)

// Verdict is a handler's verdict on a delivery.
type Verdict int

const (
	VerdictDone   = Verdict(contract.Verdict_DONE)
	VerdictRetry  = Verdict(contract.Verdict_RETRY)  // redeliver after a back-off
	VerdictReject = Verdict(contract.Verdict_REJECT) // to the dead-letter topic now
)

// Delivery is a message under a lease.
type Delivery struct {
	Message    *Message
	ID         string
	Queue      int
	Offset     int64
	Attempt    int // 1 for the first delivery
	StoredAt   time.Time
	ReplyToken []byte    // set: the sender waits for a reply: a message with this as ReplyTo
	ReplyBy    time.Time // the sender stops waiting at this time
	receipt    []byte
}

// ConsumerConfig adds what a consumer reads.
type ConsumerConfig struct {
	Config
	Group     string
	Topics    []string      // nil: all topics of the group's definition
	Invisible time.Duration // how long deliveries are leased; zero: the group's setting
	Workers   int           // 1: handlers of a Run at a time, of one key never more than one
}

// Consumer is one member of a group. Any number of members share the group's messages, without assignment.
//
// Acknowledgements wait here and ride on the next Pull; Close delivers the last ones. What is pulled and not
// acknowledged is redelivered, with Attempt one higher, after its invisible time.
type Consumer struct {
	config  ConsumerConfig
	pool    *pool
	mint    *mint
	pulling sync.Mutex // one pull at a time, so that an acknowledgement goes out once

	mu       sync.Mutex
	acks     []*contract.Ack
	acked    time.Time // when the oldest of them was given
	refused  int
	unserved map[string]string
}

// NewConsumer connects lazily: it fails only on a bad configuration.
func NewConsumer(config ConsumerConfig) (*Consumer, error) {
	config.Config = config.Config.withDefaults()
	orInt(&config.Workers, 1)
	pool, err := newPool(config.Config, "pull")
	if err != nil {
		return nil, err
	}
	return &Consumer{config: config, pool: pool, mint: newMint(config.Config)}, nil
}

// Pull returns the next deliveries; none when none came within wait (30 s at most). It retries at other proxies until
// the deadline. Errors: an *Error, ErrClosed or the context's.
func (c *Consumer) Pull(ctx context.Context, maxMessages int, wait time.Duration) ([]*Delivery, error) {
	answer, err := c.pull(ctx, maxMessages, wait, nil)
	if err != nil {
		return nil, err
	}
	return deliveries(answer.Deliveries), nil
}

// pull returns the response that was served. It extends the leases of held, unless nil.
func (c *Consumer) pull(
	ctx context.Context, maxMessages int, wait time.Duration, held *heldLeases,
) (*contract.PullResponse, error) {
	c.pulling.Lock()
	defer c.pulling.Unlock()
	deadline := time.Now().Add(wait + c.config.Deadline)
	refusal := &Error{Code: Unavailable, Reason: "no proxy could be reached before the deadline"}
	var due time.Time
	var stay *endpoint
	for failures := 1; ; failures++ {
		now := time.Now()
		start := latest(now, due, c.pool.usableAt())
		if !start.Before(deadline) {
			return nil, refusal
		}
		if err := sleepUntil(ctx, start); err != nil {
			return nil, err
		}
		sent, answer, endpoint, err := c.attempt(ctx, maxMessages, wait, deadline, held, stay)
		var failure *callFailed
		if errors.As(err, &failure) && ctx.Err() == nil {
			refusal = &Error{Code: Unavailable, Reason: failure.Error()}
			continue
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		action := Code(answer.Code).Action()
		c.settle(sent, held, answer)
		if action == Done {
			c.pool.praise(endpoint)
			if maxMessages > 0 {
				c.tellTopics(unservedOf(answer))
			}
			return answer, nil
		}
		refusal = &Error{Code: Code(answer.Code), Reason: answer.GetError()}
		if action == Refused {
			if answer.Code == contract.Code_UNKNOWN_TOPIC {
				c.tellTopics(c.allUnserved(refusal))
			}
			return nil, refusal
		}
		if action == Elsewhere {
			c.pool.setAside(endpoint)
			continue
		}
		due = time.Now().Add(pause(refusal.Code, answer.GetRetryAfterMs(), c.config.backoff(failures)))
		stay = nil
		if refusal.Code == RateLimited {
			stay = endpoint
		}
	}
}

// Done acknowledges. Like all verdicts it travels with the next Pull, Flush or Close.
func (c *Consumer) Done(d *Delivery) { c.acknowledge(d, contract.Verdict_DONE, 0, "") }

// Retry requests redelivery after delay or (zero) the group's back-off.
func (c *Consumer) Retry(d *Delivery, delay time.Duration, reason string) {
	c.acknowledge(d, contract.Verdict_RETRY, delay, reason)
}

// Reject sends it to the dead-letter topic now; the reason is stored with it.
func (c *Consumer) Reject(d *Delivery, reason string) {
	c.acknowledge(d, contract.Verdict_REJECT, 0, reason)
}

// Extend extends its lease.
func (c *Consumer) Extend(d *Delivery, delay time.Duration) {
	c.acknowledge(d, contract.Verdict_EXTEND, delay, "")
}

// Flush delivers the waiting acknowledgements now, without taking messages.
func (c *Consumer) Flush(ctx context.Context) error {
	c.mu.Lock()
	waiting := len(c.acks)
	c.mu.Unlock()
	if waiting == 0 {
		return nil
	}
	_, err := c.Pull(ctx, 0, 0)
	return err
}

// AcksRefused counts acknowledgements that were late or invalid: their messages are redelivered.
func (c *Consumer) AcksRefused() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// Close delivers the waiting acknowledgements and closes the connections.
func (c *Consumer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), c.config.Deadline)
	defer cancel()
	err := c.Flush(ctx)
	c.pool.close()
	return err
}

func (c *Consumer) acknowledge(d *Delivery, verdict contract.Verdict, delay time.Duration, reason string) {
	c.mu.Lock()
	c.queue(newAck(d, verdict, delay, reason))
	c.mu.Unlock()
}

// queue adds an acknowledgement for the next pull; the caller has the lock.
func (c *Consumer) queue(ack *contract.Ack) {
	if len(c.acks) == 0 {
		c.acked = time.Now()
	}
	c.acks = append(c.acks, ack)
}

// release gives back all that no handler of a Run has seen.
func (c *Consumer) release(held *heldLeases) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range held.release() {
		c.queue(newAck(d, contract.Verdict_RELEASE, 0, ""))
	}
}

func newAck(d *Delivery, verdict contract.Verdict, delay time.Duration, reason string) *contract.Ack {
	ack := &contract.Ack{Receipt: d.receipt, Reason: optional(reason)}
	if verdict != contract.Verdict_DONE {
		ack.Verdict = &verdict
	}
	if delay > 0 {
		ack.DelayMs = millis(delay)
	}
	return ack
}

func (c *Consumer) attempt(
	ctx context.Context, maxMessages int, wait time.Duration, deadline time.Time, held *heldLeases, stay *endpoint,
) (sent sentAcks, answer *contract.PullResponse, at *endpoint, err error) {
	sent = sentAcks{at: time.Now()}
	c.mu.Lock()
	sent.acks = c.acks[:len(c.acks):len(c.acks)]
	given := sent.acks
	if held != nil {
		sent.extended = held.toExtend(sent.at)
		for _, each := range sent.extended {
			given = append(given, newAck(each.delivery, contract.Verdict_EXTEND, held.lease, ""))
		}
	}
	c.mu.Unlock()
	wait = max(0, min(wait, deadline.Sub(sent.at)))
	count, none := int32(maxMessages), int32(0)
	ask := &contract.PullRequest{
		Credential: c.mint.credential(time.Now()), Group: c.config.Group, Topics: c.config.Topics,
		MaxMessages: &count, WaitMs: millis(wait), Acks: given,
	}
	if c.config.Invisible > 0 {
		ask.InvisibleMs = millis(c.config.Invisible)
	}
	at, err = c.pool.do(ctx, request{
		size:     len(given) * ackBytes,
		timeout:  wait + pullMargin,
		deadline: deadline,
		stay:     stay,
		call: func(client thrift.TClient) (err error) {
			answer, err = contract.NewConsumerClient(client).Pull(ctx, ask)
			return err
		},
		hello: func(client thrift.TClient) error {
			_, err := contract.NewConsumerClient(client).Pull(ctx, &contract.PullRequest{
				Credential: ask.Credential, Group: ask.Group, Topics: ask.Topics, MaxMessages: &none,
			})
			return err
		},
	})
	return sent, answer, at, err
}

// sentAcks is what one call carries: acknowledgements, then extensions.
type sentAcks struct {
	acks     []*contract.Ack
	extended []*heldDelivery
	at       time.Time
}

// settle drops settled acknowledgements; the others go with the next pull. A refused pull's acknowledgements have codes
// of their own; those with the pull's code were not looked at.
func (c *Consumer) settle(sent sentAcks, held *heldLeases, answer *contract.PullResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	results, count := answer.AckResults, len(sent.acks)
	var again []*contract.Ack
	for i, ack := range sent.acks {
		if i >= len(results) {
			again = append(again, ack)
			continue
		}
		switch action := Code(results[i].Code).Action(); {
		case action == Refused && results[i].Code != answer.Code:
			c.refused++
		case action != Done:
			again = append(again, ack)
		}
	}
	c.acks = append(again, c.acks[count:]...)
	c.acked = time.Now()
	for i, each := range sent.extended {
		if count+i >= len(results) {
			break
		}
		switch action := Code(results[count+i].Code).Action(); {
		case action == Done:
			each.until = sent.at.Add(held.lease)
		case action == Refused && results[count+i].Code != answer.Code:
			each.lost = true
		}
	}
}

// UnservedTopics are the topics that the last pull named and that give nothing, with the reason of each.
func (c *Consumer) UnservedTopics() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	topics := make(map[string]string, len(c.unserved))
	for topic, reason := range c.unserved {
		topics[topic] = reason
	}
	return topics
}

// tellTopics tells of each topic that gives nothing, and when it is served again; once per change.
func (c *Consumer) tellTopics(unserved map[string]string) {
	c.mu.Lock()
	before := c.unserved
	c.unserved = unserved
	c.mu.Unlock()
	for topic, reason := range unserved {
		if _, known := before[topic]; !known {
			c.config.Tell("topic " + topic + " gives nothing: " + reason)
		}
	}
	for topic := range before {
		if _, still := unserved[topic]; !still {
			c.config.Tell("topic " + topic + " is served again")
		}
	}
}

func unservedOf(answer *contract.PullResponse) map[string]string {
	topics := make(map[string]string, len(answer.Topics))
	for _, report := range answer.Topics {
		topics[report.Topic] = Code(report.Code).String() + ": " + report.GetError()
	}
	return topics
}

func (c *Consumer) allUnserved(refusal *Error) map[string]string {
	topics, names := map[string]string{}, c.config.Topics
	if len(names) == 0 {
		names = []string{"(the group's)"}
	}
	for _, topic := range names {
		topics[topic] = refusal.Code.String() + ": " + refusal.Reason
	}
	return topics
}

func deliveries(pulled []*contract.Delivery) []*Delivery {
	made := make([]*Delivery, len(pulled))
	for i, d := range pulled {
		made[i] = &Delivery{
			Message: fromContract(d.Message), ID: d.ID, Queue: int(d.Queue), Offset: d.Offset, Attempt: int(d.Attempt),
			StoredAt: time.UnixMilli(d.StoredAtMs), ReplyToken: d.ReplyToken, receipt: d.Receipt,
		}
		if d.ReplyByMs != nil {
			made[i].ReplyBy = time.UnixMilli(*d.ReplyByMs)
		}
	}
	return made
}
