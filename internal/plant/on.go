//go:build plant

package plant

import "os"

// Active reports whether bug is the one that the environment asks for.
func Active(bug Bug) bool { return Bug(os.Getenv("WALSINK_PLANT")) == bug }
