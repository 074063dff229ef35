package file_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/walsink/walsink/record"
	"github.com/walsink/walsink/sinks"
	"github.com/walsink/walsink/sinks/file"
)

type order struct {
	ID  int    `json:"id"`
	Day string `json:"day"`
}

// A step of three orders becomes one part for each day. The engine, package
// committer, builds the step; here it is built by hand.
func Example() {
	dir, err := os.MkdirTemp("", "orders")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	sink, err := file.Open(dir, file.Options{Buckets: true})
	if err != nil {
		log.Fatal(err)
	}
	defer sink.Close()

	encode := file.InBucket(func(o order) string { return o.Day }, file.JSON[order])
	var records [][]byte
	for _, o := range []order{{1, "2024-05-01"}, {2, "2024-05-02"}, {3, "2024-05-01"}} {
		rec, err := encode(nil, o)
		if err != nil {
			log.Fatal(err)
		}
		records = append(records, rec)
	}

	ctx := context.Background()
	lane, mark, err := sink.Acquire(ctx, sinks.LaneID{Sink: "orders", Lane: "main"})
	if err != nil {
		log.Fatal(err)
	}
	defer lane.Close()
	if _, err := lane.Flush(ctx, step(mark, record.BlockOf(records...))); err != nil {
		log.Fatal(err)
	}

	parts, _ := filepath.Glob(filepath.Join(dir, "2024-*", "*"))
	for _, part := range parts {
		name, _ := filepath.Rel(dir, part)
		text, err := os.ReadFile(part)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s\n%s", name, text)
	}
	// Output:
	// 2024-05-01/orders+main+00000000000000000007+00000.ndjson
	// {"id":1,"day":"2024-05-01"}
	// {"id":3,"day":"2024-05-01"}
	// 2024-05-02/orders+main+00000000000000000007+00000.ndjson
	// {"id":2,"day":"2024-05-02"}
}

// step is the flush of one block, as checkpoint 7, after a mark.
func step(prev sinks.Mark, block record.Block) *sinks.Step {
	h := record.NewHasher()
	h.Add(block)
	b := record.Batch{Seq: prev.Seq + 1, Checkpoint: 7, Prev: prev.Chain, Records: h.Records(), Bytes: h.Bytes(), Digest: h.Sum()}
	next := prev
	next.Seq, next.Chain, next.Checkpoint, next.Records = b.Seq, b.Chain(), b.Checkpoint, prev.Records+b.Records
	return &sinks.Step{
		Prev: prev, Next: next, Batches: []sinks.Audit{{Batch: b}}, Records: int64(b.Records), Bytes: int64(b.Bytes),
		Runs: func(yield func(sinks.Run, error) bool) { yield(sinks.Run{Block: block}, nil) },
	}
}

func ExampleEncoder() {
	enc, err := file.NewEncoder(file.Options{BucketField: "day"})
	if err != nil {
		log.Fatal(err)
	}
	for _, line := range []string{`{"id":1,"day":"2024-05-01"}`, `{"id":2,"day":"../../etc"}`, `{"id":3`} {
		if rec, err := enc.Append(nil, []byte(line)); err != nil {
			fmt.Println(err)
		} else {
			fmt.Printf("%q\n", rec)
		}
	}
	// Output:
	// "\n2024-05-01{\"id\":1,\"day\":\"2024-05-01\"}\n"
	// bucket field "day": bucket name "../../etc": want letters, digits, '.', '_', '-' or '='
	// not one JSON document
}
