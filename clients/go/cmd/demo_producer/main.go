// Demo_producer streams a file, one message per line, and reports progress as JSON lines.
//
// Line i has key "k<i mod N>", property line=i, and the line's bytes with its newline as body.
package main

import (
	"bufio"
	"context"
	"flag"
	"io"
	"os"
	"strconv"
	"time"

	penstock "penstock.io/client"
	"penstock.io/client/internal/flags"
)

func main() {
	common := flags.Register()
	path := flag.String("file", "", "file to stream")
	keys := flag.Int("keys", 16, "how many different keys")
	size := flag.Int("batch", 100, "messages per call")
	flag.Parse()
	producer, err := penstock.NewProducer(common.Config())
	flags.Check(err)
	defer producer.Close()
	file, err := os.Open(*path)
	flags.Check(err)
	defer file.Close()

	lines := &lineReader{from: bufio.NewReaderSize(file, 1<<20), topic: common.Topic, keys: *keys}
	report := newReport()
	for {
		batch, err := lines.batch(*size)
		flags.Check(err)
		if len(batch) == 0 {
			break
		}
		began := time.Now()
		results, err := producer.SendAll(context.Background(), batch, penstock.How{})
		flags.Check(err)
		for _, result := range results {
			if !result.OK() {
				report.print(producer.Retried())
				flags.Fail(result.Err())
			}
		}
		report.called(len(results), time.Since(began), producer.Retried())
	}
	report.print(producer.Retried())
}

// lineReader turns lines into messages.
type lineReader struct {
	from   *bufio.Reader
	topic  string
	keys   int
	number int
}

func (r *lineReader) batch(size int) ([]*penstock.Message, error) {
	var batch []*penstock.Message
	for len(batch) < size {
		line, err := r.from.ReadBytes('\n')
		if len(line) > 0 {
			batch = append(batch, &penstock.Message{
				Topic: r.topic, Key: "k" + strconv.Itoa(r.number%r.keys), Body: line,
				Properties: map[string]string{"line": strconv.Itoa(r.number)},
			})
			r.number++
		}
		if err == io.EOF {
			return batch, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return batch, nil
}
