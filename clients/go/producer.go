package penstock

import (
	"context"
	"errors"
	"math/rand"
	"sync/atomic"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	contract "penstock.io/client/gen/penstock"
)

const (
	callMessagesMax = 1000
	callBytesMax    = 8_000_000 // well under Thrift's frame limit of 16,384,000
)

// Durability asks for more or less than the topic's default.
type Durability int

const (
	TopicDefault    = Durability(contract.Durability_TOPIC_DEFAULT)
	Memory          = Durability(contract.Durability_MEMORY)
	Fsync           = Durability(contract.Durability_FSYNC)
	Replicated      = Durability(contract.Durability_REPLICATED)
	ReplicatedFsync = Durability(contract.Durability_REPLICATED_FSYNC)
)

// Result is the outcome of one message after all retries. Queue and Offset are -1 where the answer has none, as for
// Buffered.
type Result struct {
	Code     Code
	ID       string
	Queue    int
	Offset   int64
	Reason   string
	Reply    *Message
	Attempts int
}

// OK: stored. A request whose reply did not come is stored too, but not OK.
func (r Result) OK() bool { return r.Code.Action() == Done }

// Err is nil for a stored message, else an *Error.
func (r Result) Err() error {
	if r.OK() {
		return nil
	}
	return &Error{Code: r.Code, Reason: r.Reason, ID: r.ID}
}

// How changes one send. The zero value is the usual one.
type How struct {
	Durability Durability
	ReplyWait  time.Duration // wait for a consumer's reply; one message only
}

// Producer sends through any of several producer proxies and retries what needs it, each message by its own result
// code.
type Producer struct {
	config  Config
	pool    *pool
	mint    *mint
	retried atomic.Int64
}

// NewProducer connects lazily: it fails only on a bad configuration.
func NewProducer(config Config) (*Producer, error) {
	config = config.withDefaults()
	pool, err := newPool(config, "send")
	if err != nil {
		return nil, err
	}
	return &Producer{config: config, pool: pool, mint: newMint(config)}, nil
}

// Send sends one message and returns once it is stored, or with an *Error.
func (p *Producer) Send(ctx context.Context, message *Message) (Result, error) {
	results, err := p.SendAll(ctx, []*Message{message}, How{})
	if err != nil {
		return Result{}, err
	}
	return results[0], results[0].Err()
}

// Request sends one message and returns what a consumer replies. The message is not dispatched after wait. Without a
// reply the *Error's code has the Action NoReply, and its Reason says which of the three it is; or it is Timeout, also
// when an earlier attempt was stored, whose reply cannot be had.
func (p *Producer) Request(ctx context.Context, message *Message, wait time.Duration) (*Message, error) {
	results, err := p.SendAll(ctx, []*Message{message}, How{ReplyWait: wait})
	if err != nil {
		return nil, err
	}
	if err := results[0].Err(); err != nil {
		return nil, err
	}
	if results[0].Reply == nil {
		return nil, &Error{Code: results[0].Code, Reason: "no reply", ID: results[0].ID}
	}
	return results[0].Reply, nil
}

// Reply answers a delivery that has a ReplyToken and returns once the waiting caller has the reply; with an *Error of
// the code StaleReceipt when the caller no longer waits.
func (p *Producer) Reply(ctx context.Context, delivery *Delivery, body []byte) (Result, error) {
	return p.Send(ctx, &Message{Topic: delivery.Message.Topic, Body: body, ReplyTo: delivery.ReplyToken})
}

// SendAll sends many messages, of any topics, and returns one result each, in order. The error is about the call as a
// whole (the client is closed, or no endpoint speaks the contract); a message's failure is in its Result.
//
// Messages of one key keep their order, over retries too: a message waits while an earlier one of its key does.
func (p *Producer) SendAll(ctx context.Context, messages []*Message, how How) ([]Result, error) {
	for _, m := range messages {
		if m.ID == "" {
			m.ID = newID()
		}
	}
	now := time.Now()
	deadline := now.Add(p.config.Deadline + how.ReplyWait)
	if asked, ok := ctx.Deadline(); ok && asked.Before(deadline) {
		deadline = asked
	}
	plan := newPlan(messages, now, p.config, rand.Float64())
	plan.isRequest = how.ReplyWait > 0
	var stay *endpoint
	for plan.open > 0 && ctx.Err() == nil {
		now = time.Now()
		start := latest(plan.nextDue(), p.pool.usableAt())
		if !latest(start, now).Before(deadline) {
			break
		}
		if start.After(now) {
			_ = sleepUntil(ctx, start) // the loop's condition sees the cancellation
			continue
		}
		var err error
		if stay, err = p.attempt(ctx, plan, messages, how, deadline, stay); err != nil {
			return nil, err
		}
	}
	results := make([]Result, len(messages))
	for i, m := range messages {
		results[i] = plan.entries[i].result(m.ID)
		if told := p.config.Metrics.Sent; told != nil {
			told(results[i])
		}
	}
	return results, nil
}

// Retried counts the resent messages, over all calls.
func (p *Producer) Retried() int64 { return p.retried.Load() }

// Close closes idle connections; calls in flight end first.
func (p *Producer) Close() error {
	p.pool.close()
	return nil
}

// attempt makes one call. It returns the proxy that has promised a slot at its rate limit: the retry has to go there.
func (p *Producer) attempt(
	ctx context.Context, plan *plan, messages []*Message, how How, deadline time.Time, stay *endpoint,
) (*endpoint, error) {
	now := time.Now()
	indexes, size := oneCall(messages, plan.due(now))
	timeout := p.config.CallTimeout
	left := deadline.Sub(now)
	if left < timeout {
		timeout = left
	}
	ask := &contract.SendRequest{Credential: p.mint.credential(now), TimeoutMs: millis(timeout + time.Millisecond)}
	if how.Durability != TopicDefault {
		durability := contract.Durability(how.Durability)
		ask.Durability = &durability
	}
	if how.ReplyWait > 0 {
		wait := how.ReplyWait
		if left < wait {
			wait = left + time.Millisecond // never 0, which is no request
		}
		ask.ReplyWaitMs = millis(wait)
		timeout = max(timeout, wait)
	}
	for _, i := range indexes {
		ask.Messages = append(ask.Messages, messages[i].toContract())
		if plan.entries[i].attempts > 0 {
			p.retried.Add(1)
		}
	}
	answer, endpoint, err := p.send(ctx, ask, size, timeout+answerMargin, deadline, stay)
	var failure *callFailed
	if errors.As(err, &failure) {
		for _, i := range indexes {
			plan.failed(i, failure.Error(), failure.sent, time.Now())
		}
		return nil, nil
	}
	var foreign *Error
	if errors.As(err, &foreign) {
		for _, i := range indexes {
			plan.failed(i, foreign.Reason, foreign.sent, time.Now())
		}
		if plan.hasOutcomes() {
			plan.open = 0 // no further attempt
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	leave := false
	stay = nil
	now = time.Now()
	for position, i := range indexes {
		plan.answered(i, answer.Results[position], now)
		code := Code(answer.Results[position].Code)
		leave = leave || code.Action() == Elsewhere
		if code == RateLimited {
			stay = endpoint
		}
	}
	if leave {
		p.pool.setAside(endpoint)
	} else {
		p.pool.praise(endpoint)
	}
	return stay, nil
}

func (p *Producer) send(
	ctx context.Context, ask *contract.SendRequest, size int, timeout time.Duration, deadline time.Time, stay *endpoint,
) (answer *contract.SendResponse, at *endpoint, err error) {
	at, err = p.pool.do(ctx, request{
		size:     size,
		timeout:  timeout,
		deadline: deadline,
		stay:     stay,
		call: func(client thrift.TClient) (err error) {
			answer, err = contract.NewProducerClient(client).Send(ctx, ask)
			if err == nil && len(answer.Results) != len(ask.Messages) {
				err = errors.New("the answer has a different number of results than the request has messages")
			}
			return err
		},
		hello: func(client thrift.TClient) error {
			_, err := contract.NewProducerClient(client).Send(ctx, &contract.SendRequest{
				Credential: ask.Credential, Messages: []*contract.Message{},
			})
			return err
		},
	})
	return answer, at, err
}

// oneCall takes as many of the due messages as fit into one call, at least one, and says about how many bytes they
// take.
func oneCall(messages []*Message, due []int) ([]int, int) {
	size := 0
	for count, i := range due {
		more := messages[i].size()
		if count > 0 && (count >= callMessagesMax || size+more > callBytesMax) {
			return due[:count], size
		}
		size += more
	}
	return due, size
}
