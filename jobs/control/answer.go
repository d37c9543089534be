package control

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Meant returns which of the asks that are open c answers. An error is a
// [*RefusedError].
func (c Message) Meant(open []string) (string, error) {
	switch {
	case len(open) == 0:
		return "", Refuse(Nothing, "no question is open")
	case c.Ask == "" && len(open) > 1:
		return "", Refuse(Unfit, "%d questions are open, name one: %s", len(open), strings.Join(open, ", "))
	case c.Ask == "":
		return open[0], nil
	case !slices.Contains(open, c.Ask):
		return "", Refuse(Nothing, "question %s is not open", c.Ask)
	}
	return c.Ask, nil
}

// Words answer one question: a label of its options or its number, several of
// them where several may be chosen, or one text in words of one's own. In JSON
// a single one is a string.
type Words []string

// MarshalJSON implements [json.Marshaler].
func (w Words) MarshalJSON() ([]byte, error) {
	if len(w) == 1 {
		return json.Marshal(w[0])
	}
	return json.Marshal([]string(w))
}

// UnmarshalJSON implements [json.Unmarshaler].
func (w *Words) UnmarshalJSON(data []byte) error {
	var one *string
	if json.Unmarshal(data, &one) == nil && one != nil {
		*w = Words{*one}
		return nil
	}
	var several []string
	if json.Unmarshal(data, &several) != nil {
		return errors.New("an answer is a string, or a list of strings")
	}
	*w = several
	return nil
}

// Plain reports whether the message chooses and says nothing: to a request for permission it is
// a yes, or with Deny a no.
func (c Message) Plain() bool { return len(c.Options)+len(c.Answers) == 0 && c.Text == "" }

// Chosen returns which option of a request for permission the message chooses, or -1 where it
// is a plain yes or no. An error is a [*RefusedError]: words permit nothing.
func (c Message) Chosen(asked Question) (int, error) {
	switch {
	case c.Deny || c.Plain():
		return -1, nil
	case len(asked.Options) == 0:
		return -1, Refuse(Unfit, "the agent asks for a permission: allow it, or deny it")
	}
	said, err := c.Fit([]Question{asked})
	if err != nil {
		return -1, err
	}
	label := said[asked.Question]
	i := slices.IndexFunc(asked.Options, func(o Option) bool { return o.Label == label })
	if i < 0 {
		return -1, Refuse(Unfit, "the agent asks for a permission: choose an option (%s), allow it, or deny it", asked.labels())
	}
	return i, nil
}

// Fit makes the answers of an ask: for the text of each question, one. An error
// is a [*RefusedError].
func (c Message) Fit(questions []Question) (map[string]string, error) {
	answers := map[string]string{}
	if len(c.Answers) == 0 {
		if len(questions) > 1 {
			return nil, Refuse(Unfit, "it asks %d questions at once: answer each, by its number or its header", len(questions))
		}
		said, err := choose(questions[0], c.Options, c.Text)
		answers[questions[0].Question] = said
		return answers, err
	}
	by := map[int]string{} // the name that a question was answered by
	for _, name := range slices.Sorted(maps.Keys(c.Answers)) {
		i := slices.IndexFunc(questions, func(q Question) bool { return name == q.Question || strings.EqualFold(name, q.Header) })
		if n, err := strconv.Atoi(name); i < 0 && err == nil {
			i = n - 1
		}
		if i < 0 || i >= len(questions) {
			return nil, Refuse(Unfit, "it asks no question %q", name)
		}
		if other, twice := by[i]; twice {
			return nil, Refuse(Unfit, "question %d is answered as %q and as %q: use one name for it", i+1, other, name)
		}
		by[i] = name
		said, err := pick(questions[i], c.Answers[name])
		if err != nil {
			return nil, Refuse(Unfit, "question %d: %v", i+1, err)
		}
		answers[questions[i].Question] = said
	}
	for i, q := range questions {
		if strings.TrimSpace(answers[q.Question]) == "" {
			return nil, Refuse(Unfit, "question %d has no answer: %s", i+1, q.Question)
		}
	}
	return answers, nil
}

// pick makes the answer to one question of words that may be an option's or
// one's own. Several are options.
func pick(q Question, words []string) (string, error) {
	switch {
	case len(words) == 0:
		return "", nil
	case len(words) == 1 && q.option(words[0]) < 0:
		return words[0], nil
	}
	return choose(q, words, "")
}

// choose makes the answer to one question: labels of its options, or words of
// one's own.
func choose(q Question, options []string, text string) (string, error) {
	if len(options) == 0 {
		if strings.TrimSpace(text) == "" {
			return "", Refuse(Unfit, "there is no answer: choose an option, or write a text")
		}
		return text, nil
	}
	var chosen []string
	for _, o := range options {
		i := q.option(o)
		if i < 0 {
			return "", Refuse(Unfit, "%q is not one of its options (%s); words of your own go as a text, alone", o, q.labels())
		}
		if slices.Contains(chosen, q.Options[i].Label) {
			return "", Refuse(Unfit, "option %q is chosen twice; each of its options (%s) counts once", q.Options[i].Label, q.labels())
		}
		chosen = append(chosen, q.Options[i].Label)
	}
	if len(chosen) > 1 && !q.Multi {
		return "", Refuse(Unfit, "only one option can be chosen, of %s", q.labels())
	}
	return strings.Join(chosen, ", "), nil
}

// option finds an option by its label or its number; -1: there is none.
func (q Question) option(name string) int {
	name = strings.TrimSpace(name)
	if i := slices.IndexFunc(q.Options, func(o Option) bool { return strings.EqualFold(o.Label, name) }); i >= 0 {
		return i
	}
	if n, err := strconv.Atoi(name); err == nil && n >= 1 && n <= len(q.Options) {
		return n - 1
	}
	return -1
}

// labels are what can be chosen, for people.
func (q Question) labels() string {
	if len(q.Options) == 0 {
		return "it has none"
	}
	var labels []string
	for _, o := range q.Options {
		labels = append(labels, o.Label)
	}
	return strings.Join(labels, ", ")
}
