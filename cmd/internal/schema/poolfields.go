package schema

// The tables of what else is on the bus and in the store. A test compares them
// with the types.
var controlFields = map[string]string{
	"id":            "The sender's choice, a UUID. The same one again has no second effect, and the same receipt.",
	"verb":          "What the message asks for.",
	"by":            "Who sends it, for those who read the session.",
	"text":          "Of prompt, what the agent is told. Of answer, an answer in the sender's own words; with deny, why.",
	"images":        "Of prompt, images that the agent is shown: up to 4, with up to 512 KiB in all.",
	"images[]":      "An image.",
	"images[].type": "Its media type.",
	"images[].data": "Its content, in base64.",
	"ask":           "Of answer, the question's id. Left out, the only one that is open.",
	"options":       "Of answer, the labels of the options to choose.",
	"options[]":     "A label.",
	"answers":       "Of answer, the answers to several questions, by their numbers from 1, their headers or their texts.",
	"answers{}":     "One answer, or a list of them where several options may be chosen.",
	"deny":          "Of answer, refuses what is asked for, or leaves the question without an answer.",
	"tool_input":    "Of answer, grants a permission with this input of the tool instead of what the agent asked for.",
	"line":          "Of raw, a line of the agent's own protocol.",
	"model":         "Of set, the model to go on with.",
	"effort":        "Of set, how much the model is to think.",
	"mode":          "Of set, the mode of permissions to go on with.",
}

var recordFields = map[string]string{
	"schema":        "The version of this form.",
	"id":            "The job's id.",
	"session":       "The session's id.",
	"class":         "The class of workers that may claim the job.",
	"lane":          "The lane that its message waits in.",
	"tenant":        "Whose job it is.",
	"key":           "The key that the job was submitted with.",
	"batch":         "The batch that the job belongs to.",
	"item":          "The job's identifier in its batch.",
	"parent":        "The job on whose behalf it was submitted.",
	"queue":         "The queue that the job waits in.",
	"priority":      "What is taken first from the queue.",
	"labels":        "Names and values to find the job by.",
	"labels{}":      "A label's value.",
	"needs":         "Labels that a worker must have to claim the job.",
	"needs[]":       "A label of workers.",
	"title":         "What the job is about, in a line.",
	"agent":         "The agent's name.",
	"agent_version": "The version of the agent that the job names.",
	"isolation":     "Where the attempt's files live.",
	"repo":          "The repository, without credentials.",
	"source":        "How the job came in: cli, nats, schedule or batch.",
	"trace":         "Where the job stands in a trace: as it was submitted, or the root of the trace that it has begun.",
	"state":         "pending, delayed, executing, waiting or finished.",
	"attempt":       "How many attempts have begun.",
	"counted":       "How many of them were the job's doing.",
	"lost":          "How many of them the pool lost.",
	"deaths":        "How many of those by the death of a worker, since an attempt has last answered one more prompt.",
	"host_failures": "How many of those by a host.",
	"max_attempts":  "How many attempts that count there may be.",
	"refusals":      "How many of the lost ones the model's provider refused, by reason.",
	"refusals{}":    "How many for this reason.",

	"review":         "What was decided about the result. Not there: it is unreviewed.",
	"review.state":   "accepted, rejected or delivered.",
	"review.by":      "The program that noted it.",
	"review.at":      "When.",
	"review.comment": "Why.",
	"review.epoch":   "The epoch of the attempt whose result it is.",

	"worker":        "The worker that holds the lease.",
	"beat":          "The number of the lease's heartbeats.",
	"lease":         "How long the lease holds after each heartbeat.",
	"epoch":         "The number that fences the attempt. It names the attempt's artifacts.",
	"asks":          "The oldest question that the running agent waits with.",
	"asks.ask":      "The question's id.",
	"asks.type":     "question or permission.",
	"asks.question": "What is asked, for people.",
	"asks.since":    "When it was asked.",
	"asks.open":     "How many questions are open, with this one.",

	"last_attempt":                   "What the last attempt has used, as of its last heartbeat or its end.",
	"last_attempt.usage":             "Its tokens.",
	"last_attempt.usage.input":       "Tokens read.",
	"last_attempt.usage.output":      "Tokens written.",
	"last_attempt.usage.cache_read":  "Tokens read from the model's cache.",
	"last_attempt.usage.cache_write": "Tokens written to the model's cache.",
	"last_attempt.cost_usd":          "What it cost, in US dollars.",
	"stored_bytes":                   "How many bytes the pool stores of the job: its specification, and what its attempts have written by now.",
	"spent_before":                   "What the attempts before it have used.",
	"spent_before.usage":             "Their tokens.",
	"spent_before.usage.input":       "Tokens read.",
	"spent_before.usage.output":      "Tokens written.",
	"spent_before.usage.cache_read":  "Tokens read from the model's cache.",
	"spent_before.usage.cache_write": "Tokens written to the model's cache.",
	"spent_before.cost_usd":          "What they cost, in US dollars.",

	"pull_request":         "The pull request that the job asks for.",
	"pull_request.state":   "What has become of it: wanted until the job has succeeded and it is opened, open, none where there is nothing to show, refused by the forge.",
	"pull_request.url":     "Its page, once it was opened.",
	"pull_request.number":  "Its number in the repository, once it was opened.",
	"pull_request.epoch":   "The attempt that it shows, or for which it was decided that there is none.",
	"pull_request.message": "What keeps it from being opened or updated, or why there is none.",

	"trace.traceparent": "The traceparent of W3C Trace Context. Attempts are children of children of its span.",
	"trace.tracestate":  "The tracestate.",

	"purging":      "What is kept of the finished job is being removed, and nothing brings it back.",
	"raised":       "What the job may spend in all since it was resumed with more, instead of what its budget says.",
	"from_salvage": "Attempts begin from what was last saved of an earlier one.",
	"since":        "The epoch of the last attempt before the job was begun anew.",
	"resume":       "The epoch whose capsule the job was brought back to go on with.",
	"hold":         "What a waiting job waits for: batch, depends_on or question.",
	"depends_on":   "Jobs that must succeed first.",
	"depends_on[]": "A job's id.",
	"cancel":       "There while the job is to end.",
	"cancel.by":    "Who asked for it.",
	"cancel.at":    "When.",
	"not_before":   "When a delayed job becomes pending, and a waiting one goes on without an answer.",
	"outcome":      "How the job ended.",
	"reason":       "Why the last attempt ended, unless it was a success.",
	"message":      "What happened, for people.",
	"submitted":    "When the job was submitted.",
	"started":      "When it was first claimed.",
	"claimed":      "When it was last claimed.",
	"finished":     "When it finished.",
}

var receiptFields = map[string]string{
	"id":      "The message's id.",
	"verb":    "What the message asked for.",
	"job":     "The job's id.",
	"session": "The session's id.",
	"attempt": "The attempt that took the message.",
	"state":   "accepted.",
}

var scheduleFields = below("job", jobFields, map[string]string{
	"name":     "The schedule's name.",
	"cron":     "The five fields of a crontab line, or @daily and the like.",
	"every":    "A distance instead, from when the schedule was made.",
	"timezone": "The time zone that cron is read in.",
	"missed":   "What happens to a firing while the pool is down: one late job, or none.",
	"grace":    "How late a firing may be before it is missed, for missed skip.",
	"overlap":  "What happens to a firing while the last one's job is not finished.",
	"job":      "The job to submit.",
})

var deadFields = below("record", recordFields, map[string]string{
	"id":      "The job's id, the one that the submission would have had, or a name for the message.",
	"kind":    "What was given up on.",
	"at":      "When.",
	"reason":  "Why.",
	"record":  "A job's record, as it was then.",
	"subject": "Where a submission or a message was published.",
	"data":    "What was published, or its beginning.",
	"cut":     "data is not all of it.",
})

// below adds a table's fields to own, under the name of one field.
func below(name string, fields, own map[string]string) map[string]string {
	for path, text := range fields {
		own[name+"."+path] = text
	}
	return own
}
