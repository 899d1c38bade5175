import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Gateway, GatewayOptions } from './gateway.ts'

const probe = fileURLToPath(new URL('../../fixtures/heap-probe.js', import.meta.url))

/** Options of a gateway that can be asked what it holds. */
export const withProbe = (...nodeArgs: string[]): GatewayOptions => ({
  nodeArgs: [...nodeArgs, '--expose-gc', '--import', probe],
  stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
})

type Memory = Readonly<Record<'heapUsed' | 'external' | 'arrayBuffers', number>>

/** What such a gateway has in use once all garbage is collected, in bytes. */
export async function memoryOf({ program: { child } }: Gateway): Promise<Memory> {
  child.send('measure')
  const [memory] = (await once(child, 'message')) as [Memory]
  return memory
}

/** What it holds, on the heap and outside of it, in bytes. */
export async function heldBy(gateway: Gateway): Promise<number> {
  const { heapUsed, external, arrayBuffers } = await memoryOf(gateway)
  return heapUsed + Math.max(external, arrayBuffers)
}
