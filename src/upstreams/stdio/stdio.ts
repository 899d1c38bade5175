import type { StdioServerConfig } from '../../config/schema/server-schema.ts'
import type { Caller } from '../../mesh/call.ts'
import { Cancellation, type Signal } from '../../mesh/cancel.ts'
import type { Clock, Millis } from '../../mesh/clock.ts'
import { gatewayError } from '../../mesh/errors.ts'
import type { Log } from '../../telemetry/log.ts'
import { abortError, whenAborted } from '../failure.ts'
import { modernSeat } from '../modern/modern-seat.ts'
import { ToolFacts } from '../modern/tool-facts.ts'
import { openError } from '../pipe/handshake.ts'
import { MessageLink } from '../pipe/message-link.ts'
import { PipeVerdict } from '../pipe/pipe-verdict.ts'
import type { Connect } from '../pipe/pipe.ts'
import { SingleFlight } from '../pipe/single-flight.ts'
import { soloAudience } from '../shared/audience.ts'
import { SharedLink } from '../shared/shared-link.ts'
import type { Era, Eras, Link, Upstream } from '../upstream.ts'
import { Children, type ProcessLimit } from './children.ts'
import { Restarts } from './restarts.ts'

/** After so long a start is given up for all who wait for it: there may always be somebody. In milliseconds. */
const LONGEST_START_MS: Millis = 120_000

export interface StdioOptions {
  /** The server's name in the registry. */
  readonly server: string
  readonly config: StdioServerConfig
  /** The gateway's own `initialize` params, for a process that callers share. */
  readonly hello: Readonly<Record<string, unknown>>
  readonly clock: Clock
  readonly log: Log
  /** Told of each process that a limit refuses; nobody is unless given. */
  readonly refused?: (limit: ProcessLimit) => void
}

/** A server that runs as a child process: one for all callers, or one for each. */
export class StdioUpstream implements Upstream {
  readonly #options: StdioOptions
  readonly #log: Log
  readonly #links = new Set<MessageLink | SharedLink>()
  readonly #children: Children
  readonly #restarts: Restarts
  readonly #tools = new ToolFacts()
  readonly #verdict: PipeVerdict
  #shared: SingleFlight<SharedLink> | undefined

  constructor(options: StdioOptions) {
    const { server, config, clock } = options
    const log = options.log.child({ server })
    this.#options = options
    this.#log = log
    const { refused = () => undefined } = options
    const limits = { ...config.processes, key: `mcpServers.${server}.processes`, refused }
    this.#children = new Children(config, limits, { maxReply: config.maxReply, clock, log })
    this.#restarts = new Restarts(clock, log)
    this.#verdict = new PipeVerdict(config.era, clock)
  }

  eras(): Eras {
    return this.#verdict.eras
  }

  async open(caller: Caller, signal: Signal): Promise<Link> {
    if (signal.aborted) throw abortError(signal)
    this.#children.assertOpen()
    return this.#options.config.sharing === 'shared'
      ? this.#join(caller, signal)
      : this.#openFor(caller, signal)
  }

  close(): Promise<void> {
    const closing = this.#children.close()
    // While their processes still run: the end of a conversation that was closed is no crash.
    for (const link of this.#links) void link.close()
    return closing
  }

  processes(): number {
    return this.#children.size
  }

  signal(name: NodeJS.Signals): boolean {
    return this.#children.signal(name)
  }

  async #openFor(caller: Caller, signal: Signal): Promise<Link> {
    const { server, clock } = this.#options
    const { client } = caller
    this.#children.assertRoom(client)
    const terms = {
      server,
      hello: caller.hello,
      audience: soloAudience(server, caller),
      clock,
      log: this.#log,
    }
    const link = await this.#start(caller, this.#children.startFor(client), (connect, era) =>
      MessageLink.open(connect, { ...terms, era }, signal),
    )
    if (link.discover === undefined) return link
    const seat = modernSeat(link, link.discover, { server, clock, tools: this.#tools }, caller)
    whenAborted(seat.ended, () => void link.close())
    return seat
  }

  async #join(caller: Caller, signal: Signal): Promise<Link> {
    this.#shared ??= this.#startShared()
    const shared = await this.#shared.join(signal)
    if (shared.ended.aborted) throw openError(shared.ended.reason)
    return shared.attach(caller)
  }

  #startShared(): SingleFlight<SharedLink> {
    const { server, hello, clock } = this.#options
    const terms = { server, hello, clock, log: this.#log, tools: this.#tools }
    const forget = () => (this.#shared = undefined)
    return new SingleFlight(async (signal) => {
      const limit = new Cancellation()
      whenAborted(signal, (error) => limit.abort(error))
      const cancel = clock.after(LONGEST_START_MS, () => {
        const message = `the start of the process took longer than ${LONGEST_START_MS} ms`
        limit.abort(gatewayError('attempt_timeout', message))
      })
      const link = await this.#start(this, this.#children.startFor(undefined), (connect, era) =>
        SharedLink.open(connect, { ...terms, era }, limit),
      ).finally(cancel)
      whenAborted(link.ended, forget)
      return link
    }, forget)
  }

  async #start<Held extends MessageLink | SharedLink>(
    owner: object,
    start: Connect,
    open: (connect: Connect, era: Era | 'auto') => Promise<Held>,
  ): Promise<Held> {
    const link = await this.#restarts.open(owner, () => this.#verdict.open(start, open))
    this.#links.add(link)
    whenAborted(link.ended, () => this.#links.delete(link))
    return link
  }
}
