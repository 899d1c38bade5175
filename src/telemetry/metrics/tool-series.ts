import type { Labels } from './format.ts'
import { OneTool, type PerTool } from './one-tool.ts'
import { labelValue, OTHER } from './label-value.ts'

/** Whether a tool is in its server's catalog. */
export type IsListed = (server: string, tool: string) => boolean

/** After how many calls in vain it is looked again whether some tools with series are gone. */
const SWEEP_EVERY = 256

interface OneServer {
  readonly tools: Map<string, OneTool>
  readonly other: OneTool
  inVain: number
}

/**
 * The series of tools. Only a tool that its server lists gets any, and only so many of one server: all others share
 * `_other`. Where all places are taken, those of tools that are listed no more are given away, with their counts.
 */
export class ToolSeries {
  /** Most tools of a server with series of their own. */
  limit = 500
  readonly #metrics: PerTool
  readonly #servers = new Map<string, OneServer>()

  constructor(metrics: PerTool) {
    this.#metrics = metrics
  }

  /** Servers that have series. */
  get servers(): Iterable<string> {
    return this.#servers.keys()
  }

  /** The series of a tool. Not to be kept: they may be forgotten. */
  of(server: string, tool: string, isListed: IsListed): OneTool {
    const known = this.#servers.get(server)
    return known?.tools.get(tool) ?? this.#first(server, tool, known, isListed)
  }

  /** Removes what there is of a server. */
  forget(server: string): void {
    if (this.#servers.delete(server)) this.#remove((labels) => labels.server === server)
  }

  #first(server: string, tool: string, known: OneServer | undefined, isListed: IsListed): OneTool {
    const { tools, other } = known ?? this.#add(server)
    if (!isListed(server, tool) || !this.#hasRoom(server, isListed)) return other
    const series = new OneTool(this.#metrics, server, labelValue(tool))
    tools.set(tool, series)
    return series
  }

  #add(server: string): OneServer {
    const added = { tools: new Map(), other: new OneTool(this.#metrics, server, OTHER), inVain: 0 }
    this.#servers.set(server, added)
    return added
  }

  #hasRoom(server: string, isListed: IsListed): boolean {
    const known = this.#servers.get(server)
    if (known === undefined || known.tools.size < this.limit) return true
    if (known.inVain++ % SWEEP_EVERY !== 0) return false
    const gone = new Set<string>()
    for (const [tool, { labels }] of known.tools) {
      if (isListed(server, tool)) continue
      gone.add(labels.tool)
      known.tools.delete(tool)
    }
    if (gone.size > 0) this.#remove((labels) => labels.server === server && gone.has(labels.tool!))
    return known.tools.size < this.limit
  }

  /** All at once: each metric looks at all its series. What is counted afterwards in a series that is gone is lost. */
  #remove(isGone: (labels: Labels) => boolean): void {
    for (const name of perTool) this.#metrics[name].forget(isGone)
  }
}

const perTool = [
  'toolCalls',
  'toolCallVerdicts',
  'toolCallDuration',
  'attempts',
  'invalidArguments',
  'breakerTransitions',
] as const
