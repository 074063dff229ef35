package file

import "testing"

func TestValidate(t *testing.T) {
	inBucket := InBucket(func(string) string { return "b" }, func(dst []byte, s string) ([]byte, error) { return append(dst, s...), nil })
	wire := func(s string) string {
		rec, err := inBucket(nil, s)
		if err != nil {
			t.Fatal(err)
		}
		return string(rec)
	}
	for _, tc := range []struct {
		opts Options
		rec  string
		ok   bool
	}{
		{Options{}, "{}\n", true},
		{Options{}, "{}", false},
		{Options{}, "", false},
		{Options{Format: "csv", Header: []string{"a"}}, "1", false},
		{Options{Format: "raw"}, "", true},
		{Options{Buckets: true}, wire("{}\n"), true},
		{Options{Buckets: true}, wire("{}"), false},
		{Options{Buckets: true}, "", false},
	} {
		s, err := Open(t.TempDir(), tc.opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate([]byte(tc.rec)); (err == nil) != tc.ok {
			t.Errorf("%+v %q: %v", tc.opts, tc.rec, err)
		}
		if n := testing.AllocsPerRun(10, func() { _ = s.Validate([]byte(tc.rec)) }); tc.ok && n > 1 {
			t.Errorf("%+v: %v allocations", tc.opts, n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
