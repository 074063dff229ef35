package monitor

import (
	"fmt"
	"strconv"
	"time"
)

// size is a number of bytes for people.
func size(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, u := float64(n)/1024, 0
	for v >= 1024 && u < len(units)-1 {
		v, u = v/1024, u+1
	}
	return fmt.Sprintf("%.4g %ciB", v, units[u])
}

// percent is a part for people.
func percent(part, whole int64) string {
	switch {
	case whole <= 0 || part <= 0:
		return "0 %"
	case part < whole/1000:
		return "< 0.1 %"
	}
	return fmt.Sprintf("%.3g %%", 100*float64(part)/float64(whole))
}

// number is a number for people, of about three digits.
func number(v float64) string {
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%.3gG", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.3gM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.3gk", v/1e3)
	case v >= 100 || v == float64(int64(v)):
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// group is a number with its thousands apart.
func group(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

// short is a duration of at most two units.
func short(d time.Duration) string {
	switch {
	case d <= 0:
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return two(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < 48*time.Hour:
		return two(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// two writes the second unit only if it is not 0.
func two(n int, unit string, m int, sub string) string {
	if m == 0 {
		return fmt.Sprintf("%d %s", n, unit)
	}
	return fmt.Sprintf("%d %s %d %s", n, unit, m, sub)
}

// Axes of the charts.
var (
	numbers = axis{number, 1000}
	sizes   = axis{func(v float64) string { return size(int64(v)) }, 1024}
	times   = axis{func(v float64) string { return short(time.Duration(v * float64(time.Second))) }, 60}
)

// ago is the label of a time axis.
func ago(d time.Duration) string {
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("−%d s", int(d.Seconds()+.5))
	case d < 2*time.Hour:
		return fmt.Sprintf("−%.2g min", d.Minutes())
	}
	return fmt.Sprintf("−%.2g h", d.Hours())
}
