package topcmd

import (
	tea "charm.land/bubbletea/v2"

	"github.com/penstock-run/penstock/jobs/operation"
)

// key does what a key means. Text is what it types.
func (m *model) key(name, text string) tea.Cmd {
	m.notice = ""
	switch {
	case name == "ctrl+c":
		m.interrupted = true
		return tea.Quit
	case m.typing:
		m.edit(name, text)
		return nil
	case m.asking != "":
		queue, resume := m.asking, m.resume
		if m.asking = ""; name == "y" || name == "Y" {
			return m.change(queue, resume)
		}
		m.notice = "nothing was changed"
		return nil
	case m.standing != nil:
		m.standing = nil // any key goes back
		return nil
	}
	switch name {
	case "q":
		return tea.Quit
	case "enter":
		return m.enter()
	case "p":
		m.ask()
	case "/":
		m.typing, m.line = true, 0
	case "esc":
		m.filter = ""
	case "s":
		if n := len(m.table().header); n > 0 {
			m.column[m.at] = (m.column[m.at] + 1) % n
		}
	default:
		m.move(name)
	}
	return nil
}

// move goes to another line or another table.
func (m *model) move(name string) {
	tables, last := len(m.column), max(len(m.rows())-1, 0)
	switch name {
	case "tab", "right", "l":
		m.at, m.line = (m.at+1)%tables, 0
	case "shift+tab", "left", "h":
		m.at, m.line = (m.at+tables-1)%tables, 0
	case "up", "k":
		m.line = max(m.line-1, 0)
	case "down", "j":
		m.line = min(m.line+1, last)
	case "pgup":
		m.line = max(m.line-m.room(), 0)
	case "pgdown":
		m.line = min(m.line+m.room(), last)
	case "home", "g":
		m.line = 0
	case "end", "G":
		m.line = last
	}
}

// edit changes the filter as it is typed.
func (m *model) edit(name, text string) {
	runes := []rune(m.filter)
	switch {
	case name == "enter":
		m.typing = false
	case name == "esc":
		m.typing, m.filter = false, ""
	case name == "backspace" && len(runes) > 0:
		m.filter = string(runes[:len(runes)-1])
	default:
		m.filter += text
	}
	m.line = 0
}

// enter explains a job, and shows the jobs of a queue.
func (m *model) enter() tea.Cmd {
	r, ok := m.chosen()
	switch {
	case ok && r.job != "":
		return m.explain(r.job)
	case ok && r.queue != "":
		m.at, m.line, m.filter = 0, 0, r.queue
	}
	return nil
}

// ask asks for a confirmation, of those who may.
func (m *model) ask() {
	r, ok := m.chosen()
	switch {
	case !m.client.May(operation.QueuePause.Row):
		m.notice = "not allowed: only the role operator pauses queues"
	case ok && r.queue != "":
		m.asking, m.resume = r.queue, r.held
	default:
		m.notice = "choose a job or a queue first"
	}
}
