import com.google.common.hash.BloomFilter;
import com.google.common.hash.Funnel;
import com.google.common.hash.Funnels;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.function.IntFunction;

/**
 * The Java side of TestGuavaJava. For each kind of element and each strategy it writes DIR/java-NAME,
 * a filter of the elements 0 to n-1, and then reads DIR/go-NAME, which Go wrote, and writes to
 * DIR/answers-NAME the answers for the elements 0 to 5n-1, a byte 0 or 1 each.
 */
public final class GuavaFile {
  static Path dir;
  static int n;
  static double fpp;

  public static void main(String[] args) throws Exception {
    dir = Path.of(args[0]);
    n = Integer.parseInt(args[1]);
    fpp = Double.parseDouble(args[2]);
    for (String strategy : new String[] {"MURMUR128_MITZ_64", "MURMUR128_MITZ_32"}) {
      run("utf8", strategy, Funnels.stringFunnel(StandardCharsets.UTF_8), i -> "user:\u5546\u54c1\ud83d\ude00" + i);
      run("utf16", strategy, Funnels.unencodedCharsFunnel(), i -> "user:\u5546\u54c1\ud83d\ude00" + i);
      run("int", strategy, Funnels.integerFunnel(), i -> i * 7919 - 5000);
      run("long", strategy, Funnels.longFunnel(), i -> i * 1_000_003L * 1_000_003L - (1L << 40));
      run("bytes", strategy, Funnels.byteArrayFunnel(), i -> new byte[] {(byte) i, (byte) (i >> 8), (byte) (i >> 16)});
    }
  }

  static <T, E extends T> void run(String kind, String strategy, Funnel<T> funnel, IntFunction<E> element) throws Exception {
    String name = kind + "-" + strategy;
    BloomFilter<T> own = create(funnel, strategy);
    for (int i = 0; i < n; i++) {
      own.put(element.apply(i));
    }
    try (OutputStream out = Files.newOutputStream(dir.resolve("java-" + name))) {
      own.writeTo(out);
    }
    BloomFilter<T> go;
    try (InputStream in = Files.newInputStream(dir.resolve("go-" + name))) {
      go = BloomFilter.readFrom(in, funnel);
    }
    byte[] answers = new byte[5 * n];
    for (int i = 0; i < answers.length; i++) {
      answers[i] = (byte) (go.mightContain(element.apply(i)) ? 1 : 0);
    }
    Files.write(dir.resolve("answers-" + name), answers);
    System.out.println(name + ": expectedFpp " + go.expectedFpp() + ", count " + go.approximateElementCount());
  }

  /** Guava has no public method that selects the strategy. */
  @SuppressWarnings("unchecked")
  static <T> BloomFilter<T> create(Funnel<T> funnel, String strategy) throws Exception {
    Class<?> type = Class.forName("com.google.common.hash.BloomFilter$Strategy");
    Object value = null;
    for (Object s : Class.forName("com.google.common.hash.BloomFilterStrategies").getEnumConstants()) {
      if (s.toString().equals(strategy)) {
        value = s;
      }
    }
    Method m = BloomFilter.class.getDeclaredMethod("create", Funnel.class, long.class, double.class, type);
    m.setAccessible(true);
    return (BloomFilter<T>) m.invoke(null, funnel, (long) n, fpp, value);
  }
}
