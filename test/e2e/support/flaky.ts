import { fileURLToPath } from 'node:url'
import type { Behaviour } from '../../fixtures/flaky/behaviour.ts'
import { Program } from './program.ts'

const script = fileURLToPath(new URL('../../fixtures/flaky-server.js', import.meta.url))

/** A server in its own process that fails on request of a test. */
export class FlakyServer {
  readonly program: Program
  readonly url: string

  private constructor(program: Program, url: string) {
    this.program = program
    this.url = url
  }

  static async start(): Promise<FlakyServer> {
    const program = new Program([script])
    const url = await program.line('the flaky server listens', (line) => /^listening (\S+)$/.exec(line)?.[1])
    return new FlakyServer(program, url)
  }

  /** Sets the behaviour of tools from now on. */
  async behave(behaviours: Readonly<Record<string, Behaviour>>): Promise<void> {
    await fetch(new URL('/behaviour', this.url), { method: 'PUT', body: JSON.stringify(behaviours) })
  }

  /** Changes the annotations of tools in the list from now on. */
  async annotate(annotations: Readonly<Record<string, object>>): Promise<void> {
    await fetch(new URL('/annotations', this.url), { method: 'PUT', body: JSON.stringify(annotations) })
  }

  async count(tool: string): Promise<number> {
    const counts = (await (await fetch(new URL('/counts', this.url))).json()) as Record<string, number>
    return counts[tool] ?? 0
  }
}
