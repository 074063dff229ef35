// Package paired times two ways to do the same work by turns, so that a benchmark
// carries its baseline in the same run.
package paired

import (
	"slices"
	"testing"
	"time"
)

// Unit is the metric that Run reports: the time of the work as a multiple of the
// time of its baseline.
const Unit = "x-baseline"

// Run runs base and work by turns, once each before anything is counted, and
// reports the median of the ratios of their times, and the median of the base's
// time. Each returns how long its counted part took.
func Run(b *testing.B, base, work func() time.Duration) {
	b.Helper()
	base()
	work()
	var ratios, bases []float64
	for b.Loop() {
		t := base()
		ratios = append(ratios, float64(work())/float64(t))
		bases = append(bases, t.Seconds())
	}
	b.ReportMetric(median(ratios), Unit)
	b.ReportMetric(median(bases)*1e3, "baseline-ms")
	b.ReportMetric(0, "ns/op")
}

// Time is how long fn takes.
func Time(fn func()) time.Duration {
	start := time.Now()
	fn()
	return time.Since(start)
}

func median(v []float64) float64 {
	slices.Sort(v)
	n := len(v)
	return (v[(n-1)/2] + v[n/2]) / 2
}
