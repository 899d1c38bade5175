import { LargeMessage } from '../../src/protocol/large-message.ts'
import { LongStrings } from '../../src/protocol/long-strings.ts'

/** Reads a text as the gateway reads a large reply. Fails if the text is no JSON object. */
export function largeMessage(text: string): LargeMessage {
  const chunk = Buffer.from(text)
  const strings = new LongStrings()
  const message = strings.read(chunk) ? LargeMessage.read([chunk], strings) : undefined
  if (message === undefined) throw new Error('no large message')
  return message
}

/** Returns true if a large message has not been converted to text yet. */
export function isStillBytes(message: object): boolean {
  return LargeMessage.is(message) && Object.getOwnPropertyDescriptor(message, 'text')?.get !== undefined
}
