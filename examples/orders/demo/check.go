package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// order is what a customer wants.
type order struct {
	id       string
	sku      string
	quantity int
	shipping string
}

func (o *order) input() string {
	return fmt.Sprintf(`{"orderId":%q,"sku":%q,"quantity":%d,"shipping":%q}`, o.id, o.sku, o.quantity, o.shipping)
}

// execution is what the demo reads of `nf get -o json`.
type execution struct {
	ExecutionID string         `json:"executionId"`
	Status      string         `json:"status"`
	StartedAt   time.Time      `json:"startedAt"`
	EndedAt     time.Time      `json:"endedAt"`
	Input       map[string]any `json:"input"`
	Output      map[string]any `json:"output"`
	Tasks       []attempt      `json:"tasks"`
	byRef       map[string][]*attempt
}

type attempt struct {
	Ref           string    `json:"taskReferenceName"`
	Type          string    `json:"type"`
	Attempt       int       `json:"attempt"`
	Delivery      int       `json:"delivery"`
	Status        string    `json:"status"`
	AttemptStatus string    `json:"attemptStatus"`
	Cause         string    `json:"cause"`
	Reason        string    `json:"reasonForIncompletion"`
	WorkerID      string    `json:"workerId"`
	LeasedAt      time.Time `json:"leasedAt"`
	ScheduledAt   time.Time `json:"scheduledAt"`
	EndedAt       time.Time `json:"endedAt"`
	Delay         *struct {
		PolicyMs          int64  `json:"policyMs"`
		ProviderMinimumMs int64  `json:"providerMinimumMs"`
		SelectedMs        int64  `json:"selectedMs"`
		Source            string `json:"source"`
	} `json:"delay"`
}

// last gives the newest attempt of a task; one without a status if it was not reached.
func (x *execution) last(ref string) *attempt {
	list := x.byRef[ref]
	if len(list) == 0 {
		return &attempt{}
	}
	return list[len(list)-1]
}

func (x *execution) status(ref string) string { return x.last(ref).Status }

// read gives the executions of orders; fewer when the runner does not answer.
func (d *demo) read(orders []order) []execution {
	var out []execution
	for i := range orders {
		id, err := d.output(d.client(), "start", "shop/fulfil-order", "--key", orders[i].id, "--input", orders[i].input())
		if err != nil {
			return out
		}
		text, err := d.output(d.client(), "get", strings.TrimSpace(id), "-o", "json")
		if err != nil {
			return out
		}
		var x execution
		if json.Unmarshal([]byte(text), &x) != nil {
			return out
		}
		x.byRef = map[string][]*attempt{}
		for j := range x.Tasks {
			x.byRef[x.Tasks[j].Ref] = append(x.byRef[x.Tasks[j].Ref], &x.Tasks[j])
		}
		out = append(out, x)
	}
	return out
}

// tellWhere says where each order stands.
func tellWhere(list []execution) {
	for i := range list {
		x := &list[i]
		var open []string
		for j := range x.Tasks {
			if t := &x.Tasks[j]; slices.Contains([]string{"SCHEDULED", "IN_PROGRESS", "WAITING"}, t.Status) && t.Type != "JOIN" {
				open = append(open, t.Ref+" "+t.Status)
			}
		}
		took := ""
		if !x.EndedAt.IsZero() {
			took = "after " + x.EndedAt.Sub(x.StartedAt).Round(time.Millisecond).String()
		}
		fmt.Printf("  %v  %-9s %s%s\n", x.Input["orderId"], x.Status, took, strings.Join(open, ", "))
	}
}

// checks collects what is not as it should be.
type checks struct {
	order string
	wrong []error
}

func (c *checks) that(so bool, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !so {
		c.wrong = append(c.wrong, fmt.Errorf("%s: not so: %s", c.order, text))
	}
}

// check looks at every order: each promise of the example, by what is stored.
func (d *demo) check(orders []order) error {
	list := d.read(orders)
	if len(list) != len(orders) {
		return errors.New("the executions cannot be read")
	}
	receipts := map[any]bool{}
	var wrong []error
	for i := range list {
		c := &checks{order: orders[i].id}
		c.oneOrder(&orders[i], &list[i])
		if i > 0 {
			c.that(list[i].StartedAt.Before(d.killed) && list[i].EndedAt.After(d.killed), "the runner died while it ran")
		}
		receipts[list[i].Output["receipt"]] = true
		wrong = append(wrong, c.wrong...)
	}
	if len(receipts) != len(orders) {
		wrong = append(wrong, fmt.Errorf("%d orders have %d different receipts", len(orders), len(receipts)))
	}
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	fmt.Printf("yes: %d orders are fulfilled, each paid and packed once; each waited 2 s for the warehouse as it had asked;\n"+
		"each lacks its loyalty points, which are optional; the death of the runner cost nothing but time\n", len(orders))
	return nil
}

// oneOrder checks one order.
func (c *checks) oneOrder(o *order, x *execution) {
	c.that(x.Status == "COMPLETED", "it is COMPLETED, not %s", x.Status)
	c.backOff(x)
	c.that(x.last("price").Type == "GRPC" && x.status("price") == "COMPLETED", "the price came over gRPC")
	c.that(fmt.Sprint(x.Output["totalCents"]) == strconv.Itoa(1290*o.quantity), "%d cost %d cents, not %v", o.quantity, 1290*o.quantity, x.Output["totalCents"])
	courier, other := "book_courier", "use_post"
	if o.shipping != "express" {
		courier, other = other, courier
	}
	c.that(x.status("ship_how") == "COMPLETED" && x.status(courier) == "COMPLETED", "shipping %s goes by %s", o.shipping, courier)
	c.that(x.status(other) == "" || x.status(other) == "SKIPPED", "%s is not taken", other)
	c.that(x.status("side_by_side") == "COMPLETED" && x.status("both_done") == "COMPLETED", "the branches are joined")
	c.that(len(x.byRef["charge"]) == 1 && x.status("charge") == "COMPLETED" && x.last("charge").Delivery == 1, "it is charged once")
	pack := x.last("pack")
	c.that(pack.Type == "SIMPLE" && pack.Status == "COMPLETED" && pack.WorkerID == "packer-1", "the worker packed it")
	c.that(len(x.byRef["pack"]) == 1 && pack.Delivery == 1, "it is packed once: %d attempts, %d deliveries", len(x.byRef["pack"]), pack.Delivery)
	c.that(x.Output["parcel"] == "parcel-"+o.id, "the parcel is in the output: %v", x.Output["parcel"])
	pause := x.last("cool_off")
	c.that(pause.Status == "COMPLETED" && pause.EndedAt.Sub(pause.ScheduledAt) >= 2*time.Second, "the WAIT lasts 2 s")
	points := x.last("loyalty_points")
	c.that(points.Status == "COMPLETED_WITH_ERRORS" && points.AttemptStatus == "FAILED_WITH_TERMINAL_ERROR" && points.Attempt == 1,
		"the loyalty points fail for good at the first attempt, and are optional: %s (%s)", points.Status, points.AttemptStatus)
}

// backOff checks the retry: the warehouse asked for 2 s, and got them.
func (c *checks) backOff(x *execution) {
	tries := x.byRef["reserve"]
	if len(tries) != 2 {
		c.that(false, "it is reserved at the second attempt: %d attempts", len(tries))
		return
	}
	first, second := tries[0], tries[1]
	c.that(first.Status == "FAILED" && strings.Contains(first.Reason, "503"), "the first attempt fails with 503: %s %s", first.Status, first.Reason)
	c.that(first.Delay != nil && first.Delay.Source == "retryAfter" && first.Delay.ProviderMinimumMs == 2000 && first.Delay.SelectedMs >= 2000,
		"Retry-After decides the delay: %+v", first.Delay)
	c.that(second.Status == "COMPLETED" && second.EndedAt.Sub(first.EndedAt) >= 2*time.Second, "the second attempt comes 2 s later and succeeds")
}
