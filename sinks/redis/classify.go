package redis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/walsink/walsink/sinks"
)

// codes says what to do about an answer of the server that refuses a call as a
// whole, or a command because of the server's state. Other codes are about the
// record at fault, if there is one, or else permanent.
var codes = map[string]sinks.Kind{
	"LOADING":     sinks.Transient, // it reads its data
	"BUSY":        sinks.Transient, // another script is running
	"READONLY":    sinks.Transient, // a fail-over: the next connection meets the new master
	"MASTERDOWN":  sinks.Transient,
	"CLUSTERDOWN": sinks.Transient,
	"TRYAGAIN":    sinks.Transient, // a slot is moving
	"MOVED":       sinks.Transient,
	"ASK":         sinks.Transient,
	"NOSCRIPT":    sinks.Transient, // somebody flushes the scripts all the time
	"OOM":         sinks.Transient, // the memory is full: back-pressure
	"MISCONF":     sinks.Transient, // it cannot save and takes no writes
	"NOREPLICAS":  sinks.Transient,
	"MAXCLIENTS":  sinks.Transient,
	"UNBLOCKED":   sinks.Transient,
	"NOAUTH":      sinks.Permanent,
	"WRONGPASS":   sinks.Permanent,
	"NOPERM":      sinks.Permanent,
	"NOPROTO":     sinks.Permanent,
	"DENIED":      sinks.Permanent,
	"WRONGTYPE":   sinks.Permanent, // of a ledger key; that of a record is poison
	"CROSSSLOT":   sinks.Permanent,
}

// advice is what to do about a code, where the server's text does not say.
var advice = map[string]string{
	"NOPERM":    "grant the user the script commands, the commands of the records and the ledger's keys",
	"NOAUTH":    "give user and password",
	"WRONGTYPE": "another program uses a key of the ledger: set another prefix, or remove that key",
	"OOM":       "raise maxmemory or remove data",
}

// classify says what an error of a call means. sent says whether a byte of the
// call may have left.
func classify(ctx context.Context, err error, sent bool) sinks.Kind {
	if server, ok := errors.AsType[goredis.Error](err); ok {
		return serverKind(server.Error())
	}
	if ctx.Err() != nil || errors.Is(err, context.Canceled) {
		return sinks.Cancelled
	}
	if isCertificate(err) {
		return sinks.Permanent
	}
	if sent {
		return sinks.Ambiguous
	}
	return sinks.Transient
}

// unanswered reports whether err is not an answer of the server.
func unanswered(err error) bool {
	_, server := errors.AsType[goredis.Error](err)
	return err != nil && !server
}

func isCertificate(err error) bool {
	_, verify := errors.AsType[*tls.CertificateVerificationError](err)
	_, header := errors.AsType[tls.RecordHeaderError](err)
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	return verify || header || unknown || host
}

// serverKind classifies the text of an answer that refuses the whole call.
func serverKind(text string) sinks.Kind {
	if kind, ok := codes[code(text)]; ok {
		return kind
	}
	return sinks.Permanent
}

// commandKind classifies the text of an error that one command of a record met.
func commandKind(text string) sinks.Kind {
	c := code(text)
	if c == "WRONGTYPE" || c == "CROSSSLOT" {
		return sinks.Poison
	}
	if kind, ok := codes[c]; ok {
		return kind
	}
	return sinks.Poison
}

// code is the code of a server's error: its first word, where that is in
// capitals, else "ERR". Texts that have a code of their own in disguise get it.
func code(text string) string {
	text = strings.TrimPrefix(text, "-")
	switch {
	case strings.Contains(text, "max number of clients"):
		return "MAXCLIENTS"
	case strings.Contains(text, "non local key"):
		return "TRYAGAIN"
	case strings.Contains(text, "The user executing the script can't"):
		return "NOPERM"
	case strings.HasPrefix(text, "ERR AUTH"), strings.HasPrefix(text, "ERR invalid password"),
		strings.HasPrefix(text, "ERR Client sent AUTH"):
		return "WRONGPASS"
	}
	word, _, _ := strings.Cut(text, " ")
	if word == "" || strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != "" {
		return "ERR"
	}
	return word
}

// reason is a server's text without what may come from a record.
func reason(text string) string {
	text = strings.TrimPrefix(text, "-")
	if strings.Contains(text, "unknown command") {
		return "ERR unknown command"
	}
	text, _, _ = strings.Cut(text, " script: ")
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	if len(text) > 200 {
		text = text[:200] + "..."
	}
	return text
}

// serverError is what the store said, with advice.
func serverError(object, text string) error {
	err := errors.New(reason(text))
	if object != "" {
		err = fmt.Errorf("%s: %w", object, err)
	}
	if a := advice[code(text)]; a != "" {
		err = fmt.Errorf("%w (%s)", err, a)
	}
	return err
}
