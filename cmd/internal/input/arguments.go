package input

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// SplitDash separates the arguments before -- from those after it.
func SplitDash(flags *pflag.FlagSet, args []string) (before, after []string) {
	if at := flags.ArgsLenAtDash(); at >= 0 {
		return args[:at], args[at:]
	}
	return args, nil
}

// Pairs reads entries of the form NAME=VALUE. The last one of a name counts.
func Pairs(list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	pairs := map[string]string{}
	for _, entry := range list {
		name, value, ok := strings.Cut(entry, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not NAME=VALUE", entry)
		}
		pairs[name] = value
	}
	return pairs, nil
}

// ParseSpan reads a time span as time.ParseDuration does, and a number of days: 30d.
func ParseSpan(text string) (time.Duration, error) {
	const day = 24 * time.Hour
	if number, ok := strings.CutSuffix(text, "d"); ok {
		days, err := strconv.ParseInt(number, 10, 64)
		if err != nil || days > math.MaxInt64/int64(day) || days < math.MinInt64/int64(day) {
			return 0, fmt.Errorf("%q is not a time span: write a number and a unit, as in 90s, 12h or 30d", text)
		}
		return time.Duration(days) * day, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%q is not a time span: write a number and a unit, as in 90s, 12h or 30d", text)
	}
	return d, nil
}

// Past reads a moment before now: a time, or how long ago it was. Without a
// text it is zero.
func Past(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := ParseSpan(text); err == nil {
		return now.Add(-d.Abs()), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("%q is neither a time as 2027-01-02T15:04:05Z nor a time span as 2h or 7d", text)
	}
	return at, nil
}
