package main

import "testing"

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "17": 17, "17B": 17, "1KiB": 1024, "1KB": 1000, "1kB": 1000, "10GiB": 10 << 30, "1.5 MiB": 3 << 19, "2TB": 2e12,
	} {
		if got, err := parseSize(text); got != want || err != nil {
			t.Errorf("%q: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "B", "GiB", "-1", "1GiBB", "1e30", "9223372036854775808", "NaN", "Inf", "ten"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
}

func TestFormatSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 10 << 30: "10 GiB", 5 << 40: "5 TiB"} {
		if got := formatSize(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}

func TestGroup(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 12: "12", 123: "123", 1707: "1,707", 123456: "123,456", 1234567: "1,234,567"} {
		if got := group(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}

func FuzzParseSize(f *testing.F) {
	f.Add("10GiB")
	f.Add("1.5 MB")
	f.Fuzz(func(t *testing.T, text string) {
		n, err := parseSize(text)
		if err == nil && n < 0 {
			t.Fatalf("%q: negative size %d", text, n)
		}
		flag := sizeFlag(n)
		if err := flag.Set(flag.String()); err != nil {
			t.Fatalf("%q: its own text %q is refused: %v", text, flag.String(), err)
		}
	})
}
