package telemetry_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/walsink/walsink"
	"github.com/walsink/walsink/sinks/memory"
	"github.com/walsink/walsink/telemetry"
)

// A program chooses the exporter; here the figures are read by hand.
func Example() {
	ctx := context.Background()
	reader := metric.NewManualReader()
	tel, err := telemetry.New(telemetry.Options{Meters: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "walsink")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	orders := tel.Output("orders")
	opts := walsink.Options{Dir: dir, ID: "orders", Logger: slog.New(slog.DiscardHandler)}
	out, err := walsink.Open(ctx, memory.Open(memory.NewStore(), memory.Options{}), orders.Instrument(opts))
	if err != nil {
		panic(err)
	}
	defer out.Close()
	defer orders.Watch(out)()

	_ = out.Append(ctx, []byte("a record"))
	_, _ = out.Checkpoint(ctx, nil)
	_ = out.Drain(ctx)

	var all metricdata.ResourceMetrics
	_ = reader.Collect(ctx, &all)
	for _, m := range all.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "walsink.records.out" {
			fmt.Println(m.Name, sum.DataPoints[0].Value)
		}
	}
	// Output: walsink.records.out 1
}
