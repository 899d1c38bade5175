import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import type { Gateway, GatewayOptions } from './gateway.ts'

const probe = fileURLToPath(new URL('../../fixtures/heap-probe.js', import.meta.url))

/** Returns options of a gateway whose memory can be measured. */
export const withProbe = (...nodeArgs: string[]): GatewayOptions => ({
  nodeArgs: [...nodeArgs, '--expose-gc', '--import', probe],
  stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
})

type Memory = Readonly<Record<'heapUsed' | 'external' | 'arrayBuffers', number>>

/** Returns the gateway's memory in use after garbage collection, in bytes. */
export async function memoryOf({ program: { child } }: Gateway): Promise<Memory> {
  child.send('measure')
  const [memory] = (await once(child, 'message')) as [Memory]
  return memory
}

/** Returns the bytes in use, on and off the heap. */
export async function heldBy(gateway: Gateway): Promise<number> {
  const { heapUsed, external, arrayBuffers } = await memoryOf(gateway)
  return heapUsed + Math.max(external, arrayBuffers)
}
