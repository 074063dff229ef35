//go:build !plant

package plant

// Active is false in this build.
func Active(Bug) bool { return false }
