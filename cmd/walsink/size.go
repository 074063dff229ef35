package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// units are the byte units, largest first. KB and KiB differ.
var units = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3}, {"B", 1},
}

// parseSize reads a size such as 64MiB, 1.5GB or 4096.
func parseSize(text string) (int64, error) {
	number, factor := strings.TrimSpace(text), int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, factor = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || f < 0 || math.IsNaN(f) || f*float64(factor) >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is not a size such as 64MiB or 10GB", text)
	}
	return int64(f * float64(factor)), nil
}

// formatSize writes a number of bytes for people.
func formatSize(n int64) string {
	for _, u := range units[:4] {
		if n >= u.bytes {
			number := strconv.FormatFloat(float64(n)/float64(u.bytes), 'f', 1, 64)
			return strings.TrimSuffix(number, ".0") + " " + u.name
		}
	}
	return strconv.FormatInt(n, 10) + " B"
}

// sizeFlag is a flag that holds bytes.
type sizeFlag int64

// String is exact, so that Set reads it back.
func (s *sizeFlag) String() string {
	text := strings.ReplaceAll(formatSize(int64(*s)), " ", "")
	if n, err := parseSize(text); err != nil || n != int64(*s) {
		return strconv.FormatInt(int64(*s), 10) + "B"
	}
	return text
}
func (s *sizeFlag) Type() string { return "size" }
func (s *sizeFlag) Set(text string) error {
	n, err := parseSize(text)
	*s = sizeFlag(n)
	return err
}

// group writes n with commas between thousands.
func group(n uint64) string {
	s := strconv.FormatUint(n, 10)
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}
