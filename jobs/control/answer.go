package control

import (
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
	for _, name := range slices.Sorted(maps.Keys(c.Answers)) {
		i := slices.IndexFunc(questions, func(q Question) bool { return name == q.Question || strings.EqualFold(name, q.Header) })
		if n, err := strconv.Atoi(name); i < 0 && err == nil {
			i = n - 1
		}
		if i < 0 || i >= len(questions) {
			return nil, Refuse(Unfit, "it asks no question %q", name)
		}
		answers[questions[i].Question] = c.Answers[name]
	}
	for i, q := range questions {
		if strings.TrimSpace(answers[q.Question]) == "" {
			return nil, Refuse(Unfit, "question %d has no answer: %s", i+1, q.Question)
		}
	}
	return answers, nil
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
	if len(options) > 1 && !q.Multi {
		return "", Refuse(Unfit, "only one option can be chosen")
	}
	var chosen, labels []string
	for _, o := range q.Options {
		labels = append(labels, o.Label)
	}
	for _, o := range options {
		i := slices.IndexFunc(labels, func(label string) bool { return strings.EqualFold(label, strings.TrimSpace(o)) })
		if n, err := strconv.Atoi(o); i < 0 && err == nil {
			i = n - 1
		}
		if i < 0 || i >= len(labels) {
			return "", Refuse(Unfit, "%q is not one of its options (%s); words of your own go as a text", o, strings.Join(labels, ", "))
		}
		chosen = append(chosen, labels[i])
	}
	return strings.Join(chosen, ", "), nil
}
