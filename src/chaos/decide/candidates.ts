import type { Call } from '../../mesh/call.ts'
import type { Side } from '../fault.ts'
import type { ArmedFault } from '../firing/armed-fault.ts'

/** Most kinds of calls that are remembered; past it they are worked out again. */
const REMEMBERED = 4096

/** Longest name that is remembered, in characters: agents may ask for huge ones. */
const LONGEST = 256

/** The faults that one kind of call can meet, in the order of the plan. */
export type Aimed = Readonly<Record<Side, readonly ArmedFault[]>>

/** Armed faults by what they can hit, so that a call which none is aimed at costs two look-ups. */
export class Candidates {
  readonly #faults: readonly ArmedFault[]
  readonly #tools = new Map<string, Map<string, Aimed | undefined>>()
  readonly #methods = new Map<string, Map<string, Aimed | undefined>>()
  #size = 0

  constructor(faults: readonly ArmedFault[]) {
    this.#faults = faults
  }

  /** The faults that calls of this kind can meet; undefined for none. */
  of({ server, method, tool }: Call): Aimed | undefined {
    const index = tool === undefined ? this.#methods : this.#tools
    const name = tool ?? method
    const known = index.get(server)
    const found = known?.get(name)
    if (found !== undefined || known?.has(name) === true) return found
    const made = this.#find(server, method, tool)
    if (name.length <= LONGEST) this.#remember(index, server, name, made)
    return made
  }

  #find(server: string, method: string, tool: string | undefined): Aimed | undefined {
    const hit = this.#faults.filter(({ target }) => target.subject(server, method, tool))
    if (hit.length === 0) return undefined
    const on = (side: Side) => hit.filter(({ fault }) => fault.side === side)
    return { upstream: on('upstream'), client: on('client') }
  }

  #remember(
    index: Map<string, Map<string, Aimed | undefined>>,
    server: string,
    name: string,
    aimed: Aimed | undefined,
  ): void {
    if (++this.#size > REMEMBERED) {
      this.#tools.clear()
      this.#methods.clear()
      this.#size = 1
    }
    const known = index.get(server)
    if (known === undefined) index.set(server, new Map([[name, aimed]]))
    else known.set(name, aimed)
  }
}
