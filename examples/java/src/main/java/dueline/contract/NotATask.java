package dueline.contract;

/** The record is broken: no task message. Nothing can be said of it; pass it. */
public final class NotATask extends Exception {
    public NotATask(String message) {
        super(message);
    }
}
