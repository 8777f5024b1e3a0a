package schema

// The fields of each kind: key, place in Go, default (contract 1.2–1.5, 1.9). A test holds these lists to the JSON Schemas.

func (o *Project) fields(c *codec) {
	c.texts("roots", &o.Roots, false, ".")
}

func (*Namespace) fields(*codec) {}

func (o *Semaphore) fields(c *codec) {
	whole(c, "permits", &o.Permits, 0)
}

func (o *TaskDefinition) fields(c *codec) {
	def := DefaultRetry()
	zeroable(c, "retryCount", &o.Retry.RetryCount, def.RetryCount)
	text(c, "retryLogic", &o.Retry.Logic, def.Logic)
	c.seconds("retryDelaySeconds", &o.Retry.Delay, def.Delay)
	c.scaleFactor(&o.Retry, def.BackoffScaleFactor)
	c.seconds("maxRetryDelaySeconds", &o.Retry.MaxDelay, def.MaxDelay)
	c.float("jitter", &o.Retry.Jitter, def.Jitter)
	c.float("retryBudget", &o.RetryBudget, 0.3)
	c.texts("nonRetryableErrors", &o.Retry.NonRetryableErrors, false)
	c.seconds("scheduleToStartTimeout", &o.ScheduleToStartTimeout, 0)
	c.seconds("startToCloseTimeout", &o.StartToCloseTimeout, 0)
	c.seconds("timeoutSeconds", &o.Timeout, 0)
	c.seconds("totalTimeoutSeconds", &o.TotalTimeout, 0)
	c.seconds("heartbeatTimeout", &o.HeartbeatTimeout, 0)
	c.seconds("responseTimeoutSeconds", &o.ResponseTimeout, 3_600_000)
	c.seconds("pollTimeoutSeconds", &o.PollTimeout, 30_000)
	text(c, "timeoutPolicy", &o.TimeoutPolicy, TimeoutWorkflow)
	text(c, "delivery", &o.Delivery, AtLeastOnce)
	whole(c, "concurrentExecLimit", &o.ConcurrentExecLimit, 0)
	c.refs("semaphores", &o.Semaphores)
	c.value("inputSchema", &o.InputSchema)
	c.value("outputSchema", &o.OutputSchema)
}

// scaleFactor has no meaning with FIXED, where it may not be written.
func (c *codec) scaleFactor(r *RetryPolicy, def float64) {
	if c.mode == complete && r.Logic == RetryFixed {
		c.known["backoffScaleFactor"] = true
		return
	}
	c.float("backoffScaleFactor", &r.BackoffScaleFactor, def)
}

func (o *Workflow) fields(c *codec) {
	whole(c, "version", &o.Version, 0)
	c.tasks("tasks", &o.Tasks)
	c.values("outputParameters", &o.OutputParameters, false)
	c.values("variables", &o.Variables, true)
	c.value("inputSchema", &o.InputSchema)
	c.seconds("timeoutSeconds", &o.Timeout, 0)
}

func (o *Target) fields(c *codec) {
	c.millis("defaultTimeoutMs", &o.DefaultTimeout, 30_000)
	c.usableFrom(&o.UsableFrom)
	if c.mode == reading {
		if _, ok := c.take("http"); ok {
			o.HTTP = &HTTPTarget{}
		}
		if _, ok := c.take("grpc"); ok {
			o.GRPC = &GRPCTarget{}
		}
	}
	if o.HTTP != nil {
		c.object("http", o.HTTP.fields)
	}
	if o.GRPC != nil {
		c.object("grpc", o.GRPC.fields)
	}
}

func (h *HTTPTarget) fields(c *codec) {
	text(c, "baseUri", &h.BaseURI, "")
	c.secretables("headers", &h.Headers)
	zeroable(c, "maxRedirects", &h.MaxRedirects, 3)
	whole(c, "maxResponseBytes", &h.MaxResponseBytes, 5<<20)
}

func (g *GRPCTarget) fields(c *codec) {
	text(c, "address", &g.Address, "")
	text(c, "service", &g.Service, "")
	if c.stored {
		c.bytes("descriptors", &g.Descriptors)
	} else {
		c.texts("protoFiles", &g.ProtoFiles, false)
		text(c, "descriptorSet", &g.DescriptorSet, "")
		c.texts("includeDirs", &g.IncludeDirs, false)
	}
	c.flag("tls", &g.TLS, true)
	c.secretables("metadata", &g.Metadata)
}

// usableFrom is a set of namespaces, or the word * alone.
func (c *codec) usableFrom(v *[]string) {
	const key = "usableFrom"
	if c.mode == reading {
		if raw, _ := c.take(key); raw == "*" {
			*v = []string{"*"}
			return
		}
		c.texts(key, v, true)
		return
	}
	if len(*v) == 1 && (*v)[0] == "*" {
		c.put(key, "*", false)
		return
	}
	c.texts(key, v, true)
}

// millis is a field whose name ends in Ms: whole milliseconds.
func (c *codec) millis(key string, v *Millis, def Millis) {
	zeroable(c, key, v, def)
}
