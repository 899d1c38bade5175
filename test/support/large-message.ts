import { LargeMessage } from '../../src/protocol/large-message.ts'
import { LongStrings } from '../../src/protocol/long-strings.ts'

/** A text as the gateway reads a large reply of it. Fails for what is no JSON object. */
export function largeMessage(text: string): LargeMessage {
  const chunk = Buffer.from(text)
  const strings = new LongStrings()
  const message = strings.read(chunk) ? LargeMessage.read([chunk], strings) : undefined
  if (message === undefined) throw new Error('no large message')
  return message
}

/** Whether nobody has made a text of all of a large message yet. */
export function isStillBytes(message: object): boolean {
  return LargeMessage.is(message) && Object.getOwnPropertyDescriptor(message, 'text')?.get !== undefined
}
