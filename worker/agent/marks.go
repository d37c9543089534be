package agent

import (
	"cmp"
	"regexp"
	"slices"
	"sync"
)

// mark is what stands in the variables of an agent of the settings for what only its start
// knows: {base_url} and {api_key}, and {model} or {model:DEFAULT}.
var mark = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\{(base_url|api_key|model)(?::([A-Za-z0-9][A-Za-z0-9._/:@-]*))?\}`)
})

// needsGate reports whether a value has the way to a model API.
func needsGate(value string) bool {
	return slices.ContainsFunc(mark().FindAllStringSubmatch(value, -1), func(m []string) bool { return m[1] != "model" })
}

// namesModel reports whether a value has the job's model.
func namesModel(value string) bool {
	return slices.ContainsFunc(mark().FindAllStringSubmatch(value, -1), func(m []string) bool { return m[1] == "model" })
}

// fill puts what this start knows into a value. It reports false where the value needs something
// that there is not.
func (l Launch) fill(value string) (filled string, known bool) {
	known = true
	filled = mark().ReplaceAllStringFunc(value, func(found string) string {
		m, with := mark().FindStringSubmatch(found), ""
		switch {
		case m[1] == "model":
			with = cmp.Or(l.Job.Agent.Model, m[2])
		case l.Gate == "":
		case m[1] == "base_url":
			with = l.baseURL()
		default:
			with = l.Key
		}
		known = known && with != ""
		return with
	})
	return filled, known
}
