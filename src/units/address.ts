import { z } from 'zod'

export interface Address {
  readonly host: string
  /** 0 … 65535; 0 is any free port. */
  readonly port: number
}

/** Parses `host:port`; removes the brackets of an IPv6 host. Undefined when invalid. */
export function parseAddress(text: string): Address | undefined {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([^:\s/[\]]+)):(\d{1,5})$/.exec(text)
  const port = Number(match?.[3])
  const host = match?.[1] ?? match?.[2]
  return host === undefined || port > 65_535 ? undefined : { host, port }
}

/** Whether only this machine can reach `host`. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^(::ffff:)?127(\.\d{1,3}){3}$/i.test(host)
}

const expected = 'expected host:port, such as 127.0.0.1:8080'

export const address = z
  .string(expected)
  .regex(/^(\[[0-9a-fA-F:.]+\]|[^:\s/[\]]+):\d{1,5}$/, expected)
  .refine((text) => parseAddress(text) !== undefined, 'expected a port from 0 to 65535')
