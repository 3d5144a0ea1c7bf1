// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * MappedBuffer - a program in Java whose data are in a mapped buffer, for the
 * test that such a buffer is where its file system wants it.
 *
 *   java MappedBuffer FILE BYTES
 *
 * Makes the file, fills it through the buffer, reads it again, and prints the
 * line of /proc/self/numa_maps that is the buffer's. The status is 1 if it does
 * not hold what was written.
 */
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;

final class MappedBuffer {
    public static void main(String[] words) throws IOException {
        int bytes = Integer.parseInt(words[1]);

        try (RandomAccessFile file = new RandomAccessFile(words[0], "rw");
             FileChannel channel = file.getChannel()) {
            MappedByteBuffer buffer = channel.map(FileChannel.MapMode.READ_WRITE, 0, bytes);

            for (int at = 0; at + 8 <= bytes; at += 8)
                buffer.putLong(at, 31L * at + 7);
            for (int at = 0; at + 8 <= bytes; at += 8)
                if (buffer.getLong(at) != 31L * at + 7)
                    System.exit(1);
            Files.lines(Path.of("/proc/self/numa_maps"))
                 .filter(line -> line.contains(words[0]))
                 .forEach(System.out::println);
        }
    }
}
