//go:build !crashpoints

package crash

// Point does nothing in this build.
func Point(Name) {}
