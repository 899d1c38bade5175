import { gatewayError } from '../../mesh/errors.ts'
import type { Connect } from '../pipe/pipe.ts'
import { Child, type ChildParts } from './child.ts'
import { launch, type Program } from './launch.ts'

/** The processes of one server: started one by one, ended together. */
export class Children {
  readonly #program: Program
  readonly #parts: Omit<ChildParts, 'events'>
  readonly #starting = new Set<Promise<Child>>()
  #closed = false

  constructor(program: Program, parts: Omit<ChildParts, 'events'>) {
    this.#program = program
    this.#parts = parts
  }

  /** Why nothing is started any more: throws that, once `close` was called. */
  assertOpen(): void {
    if (this.#closed) throw gatewayError('shutting_down', 'the server is being stopped')
  }

  readonly start: Connect = async (events) => {
    this.assertOpen()
    const starting = launch(this.#program, this.#parts.log).then(
      (leader) => new Child(leader, { ...this.#parts, events }),
    )
    this.#starting.add(starting)
    const forget = () => this.#starting.delete(starting)
    starting.then((child) => child.gone).then(forget, forget)
    return starting
  }

  /** How many there are, with those that are being started. */
  get size(): number {
    return this.#starting.size
  }

  /** Signals all of them; false when there are none. */
  signal(name: NodeJS.Signals): boolean {
    for (const starting of this.#starting) void starting.then((child) => child.signal(name), noChild)
    return this.#starting.size > 0
  }

  /** Ends all of them, also those that are being started. Resolves when nothing is left. */
  async close(): Promise<void> {
    this.#closed = true
    await Promise.all([...this.#starting].map((starting) => starting.then((child) => child.close(), noChild)))
  }
}

function noChild(): void {}
