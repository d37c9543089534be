package input

import (
	"regexp"
	"strings"
	"sync"
)

// A phrase is a message of a library, and what users are told instead.
type phrase struct {
	theirs *regexp.Regexp
	ours   func(m []string) string
}

// phrases are messages of libraries that decode values, in words for programmers. The libraries return the values only in their text, so
// the text has to be parsed.
var phrases = sync.OnceValue(func() []phrase {
	return []phrase{
		{regexp.MustCompile("cannot unmarshal !!(\\w+) `([^`]*)` into ([\\w.\\[\\]*]+)"), func(m []string) string { return m[2] + " is " + kinds[m[1]] + ", wants " + wanted(m[3]) }},
		{regexp.MustCompile(`cannot unmarshal !!(\w+) into ([\w.\[\]*]+)`), func(m []string) string { return "is " + kinds[m[1]] + ", wants " + wanted(m[2]) }},
		{regexp.MustCompile(`field (\S+) (?:not found in|already set in) type [\w.]+`), func(m []string) string { return `"` + m[1] + `" is not a field here, or is listed twice` }},
		{regexp.MustCompile(`yaml: unmarshal errors:\n\s*`), func([]string) string { return "" }},
		{regexp.MustCompile(`strconv\.Parse(?:Int|Uint): parsing ("[^"]*"): [a-z ]+`), func(m []string) string { return m[1] + " is not a whole number that is allowed here" }},
		{regexp.MustCompile(`strconv\.ParseFloat: parsing ("[^"]*"): [a-z ]+`), func(m []string) string { return m[1] + " is not a number" }},
		{regexp.MustCompile(`strconv\.ParseBool: parsing ("[^"]*"): [a-z ]+`), func(m []string) string { return m[1] + " is not true or false" }},
		{regexp.MustCompile(`(?:unable to parse duration: )?time: (?:invalid|missing unit in|unknown unit "[^"]*" in) duration ("[^"]*")`), func(m []string) string {
			return m[1] + " is not a duration: write a number and a unit, as in 90s, 30m or 2h"
		}},
		{regexp.MustCompile(`parsing time ("[^"]*") as "[^"]*": .*`), func(m []string) string { return m[1] + " is not a time: write it as 2027-01-02T15:04:05Z" }},
		{regexp.MustCompile(`env: parse error on field "\w+" of type "[^"]*": `), func([]string) string { return "" }},
		{regexp.MustCompile(`json: cannot unmarshal (\S+) into Go (?:struct field \w+\.(\S+) of type|value of type) ([\w.\[\]*]+)`), func(m []string) string {
			return strings.TrimSpace(m[2] + " is a " + m[1] + ", wants " + wanted(m[3]))
		}},
		{regexp.MustCompile(`json: unknown field ("[^"]*")`), func(m []string) string { return m[1] + " is not a field" }},
	}
})

var kinds = map[string]string{
	"str": "text", "int": "a number", "float": "a number", "bool": "true or false", "null": "nothing", "seq": "a list", "map": "a mapping", "timestamp": "a time",
}

// wanted describes the values of a Go type.
func wanted(goType string) string {
	switch {
	case strings.HasPrefix(goType, "[]"):
		return "a list"
	case goType == "string":
		return "text"
	case goType == "bool":
		return "true or false"
	case strings.HasPrefix(goType, "float"):
		return "a number"
	case strings.HasPrefix(goType, "int"), strings.HasPrefix(goType, "uint"):
		return "a whole number"
	case strings.HasSuffix(goType, "Duration"):
		return "a duration, as in 90s or 30m"
	}
	return "a mapping"
}

// Words is the text of an error for a user: without the types and functions of the
// libraries that decoded the input.
func Words(text string) string {
	for _, p := range phrases() {
		text = p.theirs.ReplaceAllStringFunc(text, func(found string) string { return p.ours(p.theirs.FindStringSubmatch(found)) })
	}
	return text
}
