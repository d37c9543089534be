// Package wording has what all agents are told in the same words, and cuts texts to
// the size that an event may have.
package wording

import (
	"strings"
	"unicode/utf8"
)

// Unattended is the answer to a question in a job that is not interactive. Without it
// the agent would wait for ever.
const Unattended = "This is an unattended run: no person can answer. Decide yourself, state your assumptions, and continue."

// Short cuts s to limit bytes at the boundary of a character.
func Short(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// First is the first of the texts that is not empty.
func First(texts ...string) string {
	for _, t := range texts {
		if t = strings.TrimSpace(t); t != "" {
			return Short(t, 1000)
		}
	}
	return ""
}
