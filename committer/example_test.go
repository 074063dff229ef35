package committer_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/committer"
	"github.com/walsink/walsink/sinks"
)

// A printer is a store that keeps no mark: it prints records.
type printer struct{}

func (printer) Info() sinks.Info { return sinks.Info{Name: "printer"} }

func (printer) Write(_ context.Context, step *sinks.Step) error {
	for run, err := range step.Runs {
		if err != nil {
			return err
		}
		for _, rec := range run.Block.All() {
			fmt.Printf("%s\n", rec)
		}
	}
	return nil
}

// The mark of a store without an atomic step is kept in a file beside it. A second start
// resumes after it; a crash between write and mark would repeat the last step, and the sink says so.
func ExampleWithLedger() {
	dir, err := os.MkdirTemp("", "walsink")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	for range 2 {
		ledger, err := committer.NewFileLedger(filepath.Join(dir, "ledger"))
		if err != nil {
			log.Fatal(err)
		}
		sink := committer.WithLedger(printer{}, ledger)
		out, err := walsink.Open(ctx, sink, walsink.Options{Dir: filepath.Join(dir, "state"), ID: "orders"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%v, resuming at %q\n", sink.Info().Guarantee, out.Position())
		if out.Position() == nil {
			if err := out.Append(ctx, []byte("tea")); err != nil {
				log.Fatal(err)
			}
			if _, err := out.Checkpoint(ctx, []byte("1")); err != nil {
				log.Fatal(err)
			}
		}
		if err := out.Drain(ctx); err != nil {
			log.Fatal(err)
		}
		if err := out.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// at-least-once, resuming at ""
	// tea
	// at-least-once, resuming at "1"
}
