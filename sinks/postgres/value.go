package postgres

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// This file checks the text form of values by the type of their column. A check
// returns "" or a reason; it lets nothing pass that the server would refuse for
// its form, so that a bad value is refused while its source is still at hand.

// parseInt reads a decimal number that is a whole one, in any notation: 12, 12.0,
// 1.2e1. It fails on what is not a number, not whole, or over 64 bits.
func parseInt(text []byte) (n int64, reason string) {
	if n, ok := parseShort(text); ok {
		return n, ""
	}
	d, ok := parseDecimal(text)
	if !ok {
		return 0, "not a number"
	}
	for d.n > 0 && d.digits[d.n-1] == '0' {
		d.n--
	}
	switch {
	case d.n == 0:
		return 0, ""
	case d.n > d.point:
		return 0, "not a whole number"
	case d.point > 19:
		return 0, "number out of range"
	}
	var u uint64
	for i := range d.point {
		v := uint64(0)
		if i < d.n {
			v = uint64(d.digits[i] - '0')
		}
		if u > (math.MaxUint64-v)/10 {
			return 0, "number out of range"
		}
		u = u*10 + v
	}
	switch {
	case d.negative && u <= 1<<63:
		return -int64(u), "" // also right for the smallest number, which is its own negative
	case !d.negative && u < 1<<63:
		return int64(u), ""
	}
	return 0, "number out of range"
}

// parseShort reads a number of at most 18 digits and nothing else but a sign.
func parseShort(text []byte) (n int64, ok bool) {
	digits := text
	if len(digits) > 0 && digits[0] == '-' {
		digits = digits[1:]
	}
	if len(digits) == 0 || len(digits) > 18 {
		return 0, false
	}
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	if len(digits) < len(text) {
		n = -n
	}
	return n, true
}

// maxDigits is how many digits a decimal keeps as they are.
const maxDigits = 64

// A decimal is a number: 0.digits times ten to the power of point. The first
// digit is not zero. If a digit after the first maxDigits is not zero, one
// further digit stands for all of them.
type decimal struct {
	digits   [maxDigits + 1]byte
	n        int // digits in use; 0 for the number zero
	point    int
	negative bool
}

func (d *decimal) add(c byte) {
	switch {
	case d.n < maxDigits:
		d.digits[d.n] = c
		d.n++
	case c != '0':
		d.digits[maxDigits] = c
		d.n = maxDigits + 1
	}
}

// parseDecimal reads [+-]digits[.digits][e[+-]digits].
func parseDecimal(text []byte) (d decimal, ok bool) {
	i := 0
	if i < len(text) && (text[i] == '-' || text[i] == '+') {
		d.negative = text[i] == '-'
		i++
	}
	seen, fraction := 0, false
	for ; i < len(text); i++ {
		c := text[i]
		if c == '.' && !fraction {
			fraction = true
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		seen++
		leading := d.n == 0 && c == '0'
		switch {
		case !leading && !fraction:
			d.point++
		case leading && fraction:
			d.point--
		}
		if !leading {
			d.add(c)
		}
	}
	if seen == 0 {
		return d, false
	}
	if i == len(text) {
		return d, true
	}
	if text[i] != 'e' && text[i] != 'E' {
		return d, false
	}
	exp, err := strconv.Atoi(string(text[i+1:]))
	if err != nil || exp > math.MaxInt32 || exp < math.MinInt32 {
		return d, false
	}
	d.point += exp
	return d, true
}

// isPlain reports whether text is a number so short and simple that every float
// and numeric column can hold it.
func isPlain(text []byte) bool {
	if len(text) > 0 && text[0] == '-' {
		text = text[1:]
	}
	digits, points := 0, 0
	for _, c := range text {
		switch {
		case '0' <= c && c <= '9':
			digits++
		case c == '.':
			points++
		default:
			return false
		}
	}
	return 0 < digits && digits <= 30 && points <= 1
}

// checkBits says whether n fits an integer column of the given size.
func checkBits(n int64, bits int) string {
	if n != n<<(64-bits)>>(64-bits) {
		return fmt.Sprintf("number out of range of %d bits", bits)
	}
	return ""
}

// checkFloat is for a column of the given number of bits. The server refuses
// what would become infinite, or zero without being zero.
func checkFloat(text []byte, bits int) string {
	if isPlain(text) || isSpecialFloat(string(text)) {
		return ""
	}
	d, ok := parseDecimal(text)
	if !ok {
		return "not a number"
	}
	f, err := strconv.ParseFloat(string(text), bits)
	if err != nil {
		return "number out of range"
	}
	if f == 0 && d.n > 0 {
		return "number too small"
	}
	return ""
}

func isSpecialFloat(text string) bool {
	switch text {
	case "NaN", "Infinity", "-Infinity":
		return true
	}
	return false
}

// The server's limits on numeric, in digits before and after the point.
const (
	maxNumericBefore = 131072
	maxNumericAfter  = 16383
)

func checkNumeric(text []byte) string {
	if isPlain(text) || isSpecialFloat(string(text)) {
		return ""
	}
	d, ok := parseDecimal(text)
	switch {
	case !ok:
		return "not a number"
	case d.n > 0 && d.point > maxNumericBefore:
		return "number out of range"
	case len(text)-d.point > maxNumericAfter:
		return "number with too many digits"
	}
	return ""
}

// appendBytea appends the hexadecimal form of bytes that are given as text: in
// the server's own form, \x and hexadecimal digits, or in base64.
func appendBytea(dst, text []byte) ([]byte, string) {
	if len(text) >= 2 && text[0] == '\\' && text[1] == 'x' {
		if !isHex(text[2:]) {
			return dst, `not hexadecimal after \x`
		}
		return append(dst, text...), ""
	}
	raw, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return dst, `neither base64 nor \x and hexadecimal`
	}
	return hex.AppendEncode(append(dst, '\\', 'x'), raw), ""
}

func isHex(text []byte) bool {
	for _, c := range text {
		if !isHexDigit(c) {
			return false
		}
	}
	return len(text)%2 == 0
}

func isHexDigit(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func checkUUID(text []byte) string {
	n := 0
	for i, c := range text {
		switch {
		case c == '-' && len(text) == 36 && (i == 8 || i == 13 || i == 18 || i == 23):
		case isHexDigit(c):
			n++
		default:
			return "not a UUID"
		}
	}
	if n != 32 {
		return "not a UUID"
	}
	return ""
}

// A clock reads the parts of a date or a time, one after the other.
type clock struct {
	text   []byte
	bad    bool
	year   int
	days   int64 // from 2000-01-01
	micros int64 // of the day
	offset int64 // of the zone, in microseconds east of UTC
}

// number reads between least and most digits.
func (c *clock) number(least, most int) int {
	n, v := 0, 0
	for n < most && n < len(c.text) && '0' <= c.text[n] && c.text[n] <= '9' {
		v = v*10 + int(c.text[n]-'0')
		n++
	}
	c.bad = c.bad || n < least
	c.text = c.text[n:]
	return v
}

// skip reads one of the given bytes.
func (c *clock) skip(oneOf string) (byte, bool) {
	if len(c.text) == 0 || strings.IndexByte(oneOf, c.text[0]) < 0 {
		return 0, false
	}
	b := c.text[0]
	c.text = c.text[1:]
	return b, true
}

func (c *clock) want(oneOf string) {
	if _, ok := c.skip(oneOf); !ok {
		c.bad = true
	}
}

func (c *clock) date() {
	year := c.number(4, 6)
	c.year = year
	c.want("-")
	month := c.number(2, 2)
	c.want("-")
	day := c.number(2, 2)
	if !c.bad {
		first := time.Date(year, time.Month(month), 1, 0, 0, 0, 0, time.UTC)
		at := first.AddDate(0, 0, day-1)
		c.bad = year < 1 || month < 1 || month > 12 || day < 1 || at.Month() != first.Month()
		c.days = floorDiv(at.Unix(), 24*60*60) - epochDays
	}
}

// time reads hh:mm[:ss[.fraction]] and appends it to dst with at most six digits
// of the fraction, so that what is finer is cut and never rounded up into the
// next second or day.
func (c *clock) time(dst []byte) []byte {
	start := c.text
	hour := c.number(2, 2)
	c.want(":")
	minute := c.number(2, 2)
	second := 0
	if _, ok := c.skip(":"); ok {
		second = c.number(2, 2)
	}
	dst = append(dst, start[:len(start)-len(c.text)]...)
	c.micros = int64((hour*60+minute)*60+second) * 1e6
	if _, ok := c.skip("."); ok {
		fraction := c.text
		c.number(1, 1)
		for len(c.text) > 0 && '0' <= c.text[0] && c.text[0] <= '9' {
			c.text = c.text[1:]
		}
		fraction = fraction[:min(6, len(fraction)-len(c.text))]
		c.micros += micros(fraction)
		dst = append(append(dst, '.'), fraction...)
	}
	c.bad = c.bad || hour > 24 || minute > 59 || second > 60 || hour == 24 && (minute > 0 || second > 0)
	return dst
}

// micros is a fraction of a second, of at most six digits.
func micros(fraction []byte) int64 {
	n := int64(0)
	for i := range 6 {
		n *= 10
		if i < len(fraction) {
			n += int64(fraction[i] - '0')
		}
	}
	return n
}

// zone reads Z or an offset and appends it. It reports whether there was one,
// and whether it was Z.
func (c *clock) zone(dst []byte) (out []byte, zoned, utc bool) {
	sign, ok := c.skip("Zz+-")
	if !ok {
		return dst, false, false
	}
	if sign == 'Z' || sign == 'z' {
		return append(dst, 'Z'), true, true
	}
	start := c.text
	hour := c.number(2, 2)
	_, colon := c.skip(":")
	minute := 0
	if colon || len(c.text) > 0 {
		minute = c.number(2, 2)
	}
	c.bad = c.bad || hour > 15 || minute > 59
	c.offset = int64(hour*60+minute) * 60e6
	if sign == '-' {
		c.offset = -c.offset
	}
	return append(append(dst, sign), start[:len(start)-len(c.text)]...), true, false
}

const (
	badDate      = "not a date as 2006-01-02"
	badTime      = "not a time as 15:04:05"
	badTimestamp = "not a time as 2006-01-02T15:04:05Z"
)

// appendDateTime appends the text form for a date, time, timestamp or timestamptz
// column of a value in the form of RFC 3339, in which a blank may stand for the T.
func appendDateTime(dst, text []byte, k kind) ([]byte, string) {
	if s := string(text); k != kindTime && (s == "infinity" || s == "-infinity") {
		return append(dst, text...), ""
	}
	c := clock{text: text}
	switch k {
	case kindDate:
		c.date()
		return finish(append(dst, text...), c, badDate)
	case kindTime:
		return finish(c.time(dst), c, badTime)
	}
	c.date()
	dst = append(dst, text[:len(text)-len(c.text)]...)
	var zoned, utc bool
	if len(c.text) > 0 || k == kindTimestamptz {
		c.want("Tt ")
		dst = c.time(append(dst, ' '))
		dst, zoned, utc = c.zone(dst)
	}
	dst, reason := finish(dst, c, badTimestamp)
	switch {
	case reason != "":
	case k == kindTimestamptz && !zoned:
		reason = "no time zone; give one, as Z"
	case k == kindTimestamp && zoned && !utc:
		reason = "a time zone other than Z, which the column would lose"
	}
	return dst, reason
}

func finish(dst []byte, c clock, reason string) ([]byte, string) {
	if c.bad || len(c.text) > 0 {
		return dst, reason
	}
	return dst, ""
}

// appendInt appends a whole number for a column of the given number of bits.
func appendInt(dst, text []byte, bits int) ([]byte, string) {
	n, reason := parseInt(text)
	if reason == "" {
		reason = checkBits(n, bits)
	}
	return strconv.AppendInt(dst, n, 10), reason
}
